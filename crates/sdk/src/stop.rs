//! How a handler ends without a result, and what that means for the task.
//!
//! A handler may use `?` on any error. A [`Stop`] says itself what happens next. Any other error is
//! classified by [`Task::classify`](crate::Task::classify). An error of unknown type is fatal.

use std::error::Error;
use std::time::Duration;

use longhaul_engine::queries::why::LIMIT_FULL;

/// What a handler returns.
pub type Outcome<T> = Result<T, Stop>;

/// Any error.
pub type AnyError = Box<dyn Error + Send + Sync>;

/// What an error means for its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Worth another attempt, after the wait of the retry policy.
    Retryable,
    /// The provider refused the call because of its limits. The task waits without using up a
    /// retry, and so does every other task that needs the same limit.
    RateLimited {
        /// How long the provider asks to wait.
        retry_after: Duration,
    },
    /// A retry would not help.
    Fatal,
}

/// The class of a reason that a handler gives for a snooze.
const SNOOZED: &str = "snoozed";

/// A handler's end without a result.
#[derive(Debug)]
pub struct Stop(pub(crate) StopKind);

#[derive(Debug)]
pub(crate) enum StopKind {
    Retry {
        error: AnyError,
        after: Option<Duration>,
    },
    RateLimited {
        error: AnyError,
        retry_after: Duration,
        key: Option<String>,
    },
    Snooze {
        after: Duration,
        reason: Option<String>,
        class: &'static str,
    },
    Fatal {
        class: &'static str,
        error: AnyError,
    },
    Cancelled,
    WaitForChildren,
    HandBack,
    /// An error that `?` met. The task's type classifies it.
    Unknown(AnyError),
}

impl Stop {
    /// Worth another attempt, after the wait of the retry policy.
    pub fn retryable(error: impl Into<AnyError>) -> Self {
        Self(StopKind::Retry {
            error: error.into(),
            after: None,
        })
    }

    /// Worth another attempt, after this wait. Uses up a retry.
    pub fn retry_after(error: impl Into<AnyError>, after: Duration) -> Self {
        Self(StopKind::Retry {
            error: error.into(),
            after: Some(after),
        })
    }

    /// The provider refused the call because of its limits. The task waits without using up a
    /// retry, and so does every other task that asks for a permit of the same key. The key is that
    /// of the attempt's last permit, or the one of [`Self::of_key`].
    pub fn rate_limited(error: impl Into<AnyError>, retry_after: Duration) -> Self {
        Self(StopKind::RateLimited {
            error: error.into(),
            retry_after,
            key: None,
        })
    }

    /// Names the key that the provider refused, for a handler that uses several at once:
    /// `Stop::rate_limited(error, wait).of_key("openai/gpt-4")`. Does nothing for any other end.
    #[must_use]
    pub fn of_key(mut self, refused: &str) -> Self {
        if let StopKind::RateLimited { key, .. } = &mut self.0 {
            *key = Some(refused.to_owned());
        }
        self
    }

    /// Puts the task back for later without using up a retry.
    pub fn snooze(after: Duration) -> Self {
        Self(StopKind::Snooze {
            after,
            reason: None,
            class: SNOOZED,
        })
    }

    /// Like [`Self::snooze`], with a reason that is shown with the task.
    pub fn snooze_because(after: Duration, reason: impl Into<String>) -> Self {
        Self(StopKind::Snooze {
            after,
            reason: Some(reason.into()),
            class: SNOOZED,
        })
    }

    /// No permit was available in time.
    pub(crate) fn limited(after: Duration, key: &str) -> Self {
        let reason = Some(format!("the limit of {key} has no room"));
        Self(StopKind::Snooze {
            after,
            reason,
            class: LIMIT_FULL,
        })
    }

    /// A retry would not help: the task fails.
    pub fn fatal(error: impl Into<AnyError>) -> Self {
        Self(StopKind::Fatal {
            class: "fatal",
            error: error.into(),
        })
    }

    /// The handler stops because its task is cancelled, or cancels the task itself.
    pub fn cancelled() -> Self {
        Self(StopKind::Cancelled)
    }

    /// The handler's own work is done. The task ends when its children have ended.
    pub fn wait_for_children() -> Self {
        Self(StopKind::WaitForChildren)
    }

    /// Returns the task to its queue. The attempt is not counted.
    pub fn hand_back() -> Self {
        Self(StopKind::HandBack)
    }

    /// An error that the task's type classifies, as with `?`.
    pub(crate) fn unknown(error: impl Into<AnyError>) -> Self {
        Self(StopKind::Unknown(error.into()))
    }

    /// A value that cannot be read or stored. The task fails with this class of error.
    pub fn invalid(class: &'static str, error: impl Into<AnyError>) -> Self {
        Self(StopKind::Fatal {
            class,
            error: error.into(),
        })
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Stop {
    fn from(error: E) -> Self {
        Self(StopKind::Unknown(Box::new(error)))
    }
}

/// Classifies errors of the standard library and of tokio. Timeouts and broken connections are
/// worth a retry, everything else is fatal.
pub fn classify_by_type(error: &(dyn Error + 'static)) -> Class {
    use std::io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable,
        Interrupted, NetworkUnreachable, NotConnected, TimedOut, UnexpectedEof, WouldBlock,
    };

    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<tokio::time::error::Elapsed>() {
            return Class::Retryable;
        }

        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            let transient = [
                BrokenPipe,
                ConnectionAborted,
                ConnectionRefused,
                ConnectionReset,
                HostUnreachable,
                Interrupted,
                NetworkUnreachable,
                NotConnected,
                TimedOut,
                UnexpectedEof,
                WouldBlock,
            ];

            return if transient.contains(&io.kind()) {
                Class::Retryable
            } else {
                Class::Fatal
            };
        }

        cause = error.source();
    }

    Class::Fatal
}

/// The causes of an error, one per line.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> Option<String> {
    let causes: Vec<String> = std::iter::successors(error.source(), |cause| (*cause).source())
        .map(ToString::to_string)
        .collect();
    (!causes.is_empty()).then(|| causes.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the page could not be read")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn an_error_is_classified_by_its_causes() {
        let timed_out = Outer(std::io::Error::from(std::io::ErrorKind::TimedOut));
        let missing = Outer(std::io::Error::from(std::io::ErrorKind::NotFound));
        assert_eq!(classify_by_type(&timed_out), Class::Retryable);
        assert_eq!(classify_by_type(&missing), Class::Fatal);
        assert_eq!(classify_by_type(&std::fmt::Error), Class::Fatal);
        assert_eq!(chain(&timed_out).unwrap(), "timed out");
    }

    #[test]
    fn a_question_mark_takes_any_error_and_a_stop() {
        fn any() -> Outcome<()> {
            Err(std::fmt::Error)?
        }
        fn stop() -> Outcome<()> {
            Err(Stop::cancelled())?
        }

        assert!(matches!(any().unwrap_err().0, StopKind::Unknown(_)));
        assert!(matches!(stop().unwrap_err().0, StopKind::Cancelled));
    }
}
