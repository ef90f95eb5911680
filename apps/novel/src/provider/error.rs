//! How a provider can fail, and what that means for a task.

use std::time::Duration;

use longhaul::Class;

/// Why there is no answer, or only a part of one. Nothing of it tells the key.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The provider does not know the key, or does not let it use the model.
    #[error("the provider refuses the key (status {status}): {message}")]
    InvalidKey {
        /// 401 or 403.
        status: u16,
        /// The provider's own words.
        message: String,
    },
    /// Too many requests.
    #[error("the provider has had too many requests; again in {retry_after:?}: {message}")]
    TooManyRequests {
        /// How long it wants to be left alone.
        retry_after: Duration,
        /// The provider's own words.
        message: String,
    },
    /// Something is wrong on its side.
    #[error("the provider failed (status {status}): {message}")]
    Unavailable {
        /// 408 or from 500 on.
        status: u16,
        /// The provider's own words.
        message: String,
    },
    /// It does not want this request, and will not want it the next time.
    #[error("the provider refuses the request (status {status}): {message}")]
    Refused {
        /// The status.
        status: u16,
        /// The provider's own words.
        message: String,
    },
    /// No answer, or no more of it, for so long.
    #[error("the provider was silent for {0:?}")]
    TimedOut(Duration),
    /// The connection could not be made, or broke before the end.
    #[error("the connection to the provider broke: {0}")]
    Broken(String),
    /// It answered something else than the protocol says.
    #[error("the provider's answer cannot be read: {0}")]
    Unreadable(String),
    /// It cannot even be asked: what it is to be asked with is wrong.
    #[error("the provider cannot be asked: {0}")]
    Unusable(&'static str),
    /// It answered nothing.
    #[error("the provider's answer is empty")]
    Empty,
}

impl ProviderError {
    /// What the error means: an invalid key is fatal, timeouts and failures on the other side are worth a retry, and too
    /// many requests are waited for without using one up.
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
}
