//! How a handler ends other than with its result, and what that means for the task.
//!
//! A handler may use `?` on any error. What the error means is decided by its type: a [`Stop`] says it itself, the
//! handler's own [`Task::classify`](crate::Task::classify) knows its errors, and what nobody knows is fatal.

use std::error::Error;
use std::time::Duration;

use longhaul_engine::queries::why::LIMIT_FULL;

/// What a handler returns.
pub type Outcome<T> = Result<T, Stop>;

/// An error of whatever kind.
pub type AnyError = Box<dyn Error + Send + Sync>;

/// What an error means for its task (R16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Worth another attempt, after the policy's wait.
    Retryable,
    /// The provider said "too many". Waits without using up a retry, and parks the limit for everyone.
    RateLimited {
        /// How long the provider wants to be left alone.
        retry_after: Duration,
    },
    /// No retry mends it.
    Fatal,
}

/// The class of what a handler says when it puts itself back.
const SNOOZED: &str = "snoozed";

/// A handler's end without a result.
#[derive(Debug)]
pub struct Stop(pub(crate) Kind);

#[derive(Debug)]
pub(crate) enum Kind {
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
    /// Whatever `?` met; the task says what it means.
    Unknown(AnyError),
}

impl Stop {
    /// Worth another attempt, after the wait that the retry policy says.
    pub fn retryable(error: impl Into<AnyError>) -> Self {
        Self(Kind::Retry {
            error: error.into(),
            after: None,
        })
    }

    /// Worth another attempt, after this wait. Uses up a retry.
    pub fn retry_after(error: impl Into<AnyError>, after: Duration) -> Self {
        Self(Kind::Retry {
            error: error.into(),
            after: Some(after),
        })
    }

    /// The provider refused because of its limits. The task waits without using up a retry, and everybody who asks for
    /// a permit of the same key waits too. That is the key of the attempt's last permit, or that of [`Self::of_key`].
    pub fn rate_limited(error: impl Into<AnyError>, retry_after: Duration) -> Self {
        Self(Kind::RateLimited {
            error: error.into(),
            retry_after,
            key: None,
        })
    }

    /// Names the key that the provider refused, for a handler that calls several at once:
    /// `Stop::rate_limited(error, wait).of_key("openai/gpt-4")`. Says nothing about any other end.
    #[must_use]
    pub fn of_key(mut self, refused: &str) -> Self {
        if let Kind::RateLimited { key, .. } = &mut self.0 {
            *key = Some(refused.to_owned());
        }
        self
    }

    /// Put back for later without using up a retry.
    pub fn snooze(after: Duration) -> Self {
        Self(Kind::Snooze {
            after,
            reason: None,
            class: SNOOZED,
        })
    }

    /// Like [`Self::snooze`], with a reason that people can read.
    pub fn snooze_because(after: Duration, reason: impl Into<String>) -> Self {
        Self(Kind::Snooze {
            after,
            reason: Some(reason.into()),
            class: SNOOZED,
        })
    }

    /// No permit came in time.
    pub(crate) fn limited(after: Duration, key: &str) -> Self {
        let reason = Some(format!("the limit of {key} has no room"));
        Self(Kind::Snooze {
            after,
            reason,
            class: LIMIT_FULL,
        })
    }

    /// No retry mends it: the task fails.
    pub fn fatal(error: impl Into<AnyError>) -> Self {
        Self(Kind::Fatal {
            class: "fatal",
            error: error.into(),
        })
    }

    /// The handler has seen that its task is cancelled, or cancels it itself.
    pub fn cancelled() -> Self {
        Self(Kind::Cancelled)
    }

    /// The handler's own part is done; the task ends when its children have.
    pub fn wait_for_children() -> Self {
        Self(Kind::WaitForChildren)
    }

    /// Back to the queue as if this attempt had not been: nothing is charged.
    pub fn hand_back() -> Self {
        Self(Kind::HandBack)
    }

    /// An error as `?` takes it, where its type is not known here.
    pub(crate) fn unknown(error: impl Into<AnyError>) -> Self {
        Self(Kind::Unknown(error.into()))
    }

    pub(crate) fn invalid(class: &'static str, error: impl Into<AnyError>) -> Self {
        Self(Kind::Fatal {
            class,
            error: error.into(),
        })
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Stop {
    fn from(error: E) -> Self {
        Self(Kind::Unknown(Box::new(error)))
    }
}

/// What the errors of the standard library and of tokio mean: timeouts and broken connections are worth a retry.
pub fn classify_by_type(error: &(dyn Error + 'static)) -> Class {
    use std::io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable,
        Interrupted, NetworkUnreachable, NotConnected, TimedOut, UnexpectedEof, WouldBlock,
    };
    let mut cause = Some(error);
    while let Some(known) = cause {
        if known.is::<tokio::time::error::Elapsed>() {
            return Class::Retryable;
        }
        if let Some(io) = known.downcast_ref::<std::io::Error>() {
            let passing = [
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
            return if passing.contains(&io.kind()) {
                Class::Retryable
            } else {
                Class::Fatal
            };
        }
        cause = known.source();
    }
    Class::Fatal
}

/// The causes below an error, one a line.
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
    fn an_error_is_known_by_its_causes() {
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
        assert!(matches!(any().unwrap_err().0, Kind::Unknown(_)));
        assert!(matches!(stop().unwrap_err().0, Kind::Cancelled));
    }
}
