//! The provider of texts. It answers word by word.

mod error;
mod offline;
mod openai;

use futures::stream::BoxStream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use error::ProviderError;
pub use offline::Offline;
pub use openai::{OpenAi, OpenAiSettings};

/// A request to a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// Summarize this scene.
    Summarize(String),
    /// Write the scene with this summary.
    Write(String),
}

impl Prompt {
    /// The text that the provider reads.
    pub fn text(&self) -> &str {
        match self {
            Self::Summarize(text) | Self::Write(text) => text,
        }
    }

    /// About how many words the answer has. Only progress depends on it.
    pub fn expected_word_count(&self) -> usize {
        match self {
            Self::Summarize(_) => 40,
            Self::Write(_) => 200,
        }
    }
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The next words of the text.
    Text(String),
    /// The cost of the answer. It comes last, if the provider reports it.
    Usage(Usage),
}

/// The cost of an answer, as the provider counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens that were read.
    pub prompt_tokens: u64,
    /// Tokens that were written.
    pub completion_tokens: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.completion_tokens += other.completion_tokens;
    }
}

/// Writes texts. A provider neither waits nor limits its callers: tasks do that.
pub trait Provider: std::fmt::Debug + Send + Sync {
    /// The key of its rate limits: `provider/model`.
    fn key(&self) -> &str;

    /// Starts an answer. It ends after its last piece, or with the first error.
    fn write(&self, prompt: Prompt) -> BoxStream<'static, Result<Piece, ProviderError>>;
}
