//! A provider that answers from a script.

use std::error::Error;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use longhaul_sdk::{Class, stop::classify_by_type};

/// A scripted provider: each call gets the next answer, and the last one repeats. Clones share the
/// script and the count.
///
/// ```
/// # use std::time::Duration;
/// # use longhaul::testing::FakeProvider;
/// let provider = FakeProvider::new()
///     .too_many_requests(Duration::from_secs(30))
///     .cut_off_after("half of the ans")
///     .slow(Duration::from_secs(5), "the answer, late")
///     .text("the answer");
/// ```
#[derive(Debug, Clone, Default)]
pub struct FakeProvider {
    script: Vec<Answer>,
    calls: Arc<AtomicUsize>,
}

#[derive(Debug, Clone)]
enum Answer {
    Text { after: Duration, text: String },
    TooManyRequests { retry_after: Duration },
    CutOff { received: String },
}

/// Why a [`FakeProvider`] gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// Status 429: too many requests.
    #[error("429 too many requests, retry after {retry_after:?}")]
    TooManyRequests {
        /// What the header `Retry-After` would say.
        retry_after: Duration,
    },
    /// The connection broke in the middle of the answer.
    #[error("the answer was cut off after {} bytes", received.len())]
    CutOff {
        /// The part that had arrived.
        received: String,
    },
}

impl ProviderError {
    /// The class of the error.
    pub const fn class(&self) -> Class {
        match self {
            Self::TooManyRequests { retry_after } => Class::RateLimited {
                retry_after: *retry_after,
            },
            Self::CutOff { .. } => Class::Retryable,
        }
    }

    /// For [`Task::classify`](crate::Task::classify): classifies errors of this provider, also as
    /// the cause of another error. Leaves the rest to [`classify_by_type`].
    pub fn classify(error: &(dyn Error + 'static)) -> Class {
        let mut causes = std::iter::successors(Some(error), |cause| (*cause).source());
        let known = causes.find_map(|cause| cause.downcast_ref::<Self>());
        known.map_or_else(|| classify_by_type(error), Self::class)
    }
}

impl FakeProvider {
    /// A provider with an empty script.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next call gets this text.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        self.slow(Duration::ZERO, text)
    }

    /// The next call gets this text after this delay on tokio's clock.
    #[must_use]
    pub fn slow(self, after: Duration, text: &str) -> Self {
        self.then(Answer::Text {
            after,
            text: text.to_owned(),
        })
    }

    /// The next call is refused with status 429 and this `Retry-After`.
    #[must_use]
    pub fn too_many_requests(self, retry_after: Duration) -> Self {
        self.then(Answer::TooManyRequests { retry_after })
    }

    /// The next call gets this much of an answer; then the connection breaks.
    #[must_use]
    pub fn cut_off_after(self, received: &str) -> Self {
        self.then(Answer::CutOff {
            received: received.to_owned(),
        })
    }

    fn then(mut self, answer: Answer) -> Self {
        self.script.push(answer);
        self
    }

    /// Makes one call. In a handler, `?` ends the attempt as [`ProviderError::classify`] says, if
    /// the type's `classify` calls it.
    ///
    /// # Panics
    ///
    /// When the script is empty.
    pub async fn call(&self) -> Result<String, ProviderError> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let Some(answer) = self.script.get(number).or(self.script.last()) else {
            panic!(
                "the fake provider was called but has no script: give it a text() or another answer"
            );
        };

        match answer.clone() {
            Answer::Text { after, text } => {
                if after > Duration::ZERO {
                    tokio::time::sleep(after).await;
                }
                Ok(text)
            }
            Answer::TooManyRequests { retry_after } => {
                Err(ProviderError::TooManyRequests { retry_after })
            }
            Answer::CutOff { received } => Err(ProviderError::CutOff { received }),
        }
    }

    /// How many calls it got.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}
