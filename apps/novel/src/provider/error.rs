//! The errors of a provider, and what they mean for a task.

use std::time::Duration;

use longhaul::Class;

/// Why there is no answer, or only the beginning of one. No message contains the key.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The key is unknown, or may not use the model.
    #[error("the provider refuses the key (status {status}): {message}")]
    InvalidKey {
        /// 401 or 403.
        status: u16,
        /// The provider's message.
        message: String,
    },
    /// Too many requests.
    #[error("the provider has had too many requests; retry in {retry_after:?}: {message}")]
    TooManyRequests {
        /// How long the provider asks callers to wait.
        retry_after: Duration,
        /// The provider's message.
        message: String,
    },
    /// The provider has failed.
    #[error("the provider failed (status {status}): {message}")]
    Unavailable {
        /// 408, or 500 and above.
        status: u16,
        /// The provider's message.
        message: String,
    },
    /// The provider refuses this request, and would refuse it again.
    #[error("the provider refuses the request (status {status}): {message}")]
    Refused {
        /// Any other status.
        status: u16,
        /// The provider's message.
        message: String,
    },
    /// The provider sent nothing for this long.
    #[error("the provider was silent for {0:?}")]
    TimedOut(Duration),
    /// The connection failed, or broke before the end of the answer.
    #[error("the connection to the provider broke: {0}")]
    Broken(String),
    /// The answer does not follow the protocol.
    #[error("the provider's answer cannot be read: {0}")]
    Unreadable(String),
    /// The settings do not allow a request.
    #[error("the provider cannot be asked: {0}")]
    Unusable(&'static str),
    /// The answer has no text.
    #[error("the provider's answer is empty")]
    Empty,
}

impl ProviderError {
    /// What the error means for a task. An invalid key is fatal. Timeouts and failures of the
    /// provider are retried. After too many requests the task waits without using up a retry.
    pub fn class(&self) -> Class {
        match self {
            Self::InvalidKey { .. }
            | Self::Refused { .. }
            | Self::Unreadable(_)
            | Self::Unusable(_) => Class::Fatal,
            Self::TooManyRequests { retry_after, .. } => Class::RateLimited {
                retry_after: *retry_after,
            },
            Self::Unavailable { .. } | Self::TimedOut(_) | Self::Broken(_) | Self::Empty => {
                Class::Retryable
            }
        }
    }

    /// Whether every further request with this key would fail as well.
    pub fn is_invalid_key(&self) -> bool {
        matches!(self, Self::InvalidKey { .. })
    }
}
