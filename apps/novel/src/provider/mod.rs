//! Who writes: a provider of text, which answers word by word.

mod error;
mod offline;
mod openai;

use futures::stream::BoxStream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use error::ProviderError;
pub use offline::Offline;
pub use openai::{OpenAi, OpenAiSettings};

/// What a provider is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// What happens in this scene, in short.
    Summarize(String),
    /// The scene that this is the summary of.
    Tell(String),
}

impl Prompt {
    /// What the provider has to read.
    pub fn text(&self) -> &str {
        match self {
            Self::Summarize(text) | Self::Tell(text) => text,
        }
    }

    /// About how many words the answer has: for progress alone.
    pub fn expected_words(&self) -> usize {
        match self {
            Self::Summarize(_) => 40,
            Self::Tell(_) => 200,
        }
    }
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The next words, to be put behind the ones before.
    Text(String),
    /// What the answer cost; it comes last, if the provider tells it.
    Usage(Usage),
}

/// What an answer cost, in the provider's own count.
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

/// Something that writes text. It must be cheap to ask: waits and limits are the task's business.
pub trait Provider: std::fmt::Debug + Send + Sync {
    /// What its rate limits are known by: `provider/model`.
    fn key(&self) -> &str;

    /// Starts an answer. It ends after its last piece, or with the first error.
    fn write(&self, prompt: Prompt) -> BoxStream<'static, Result<Piece, ProviderError>>;
}
