//! How a handler's outcome ends its attempt.

use std::error::Error;
use std::time::Duration;

use longhaul_domain::{
    Json, StoreError, TaskRecord, bounds,
    contract::store::{AttemptEnd, Failure},
    time::millis,
};
use serde::Serialize;

use crate::{
    attempt::AttemptServices,
    random,
    stop::{AnyError, Class, Outcome, Stop, StopKind, chain},
};

/// The end that is reported for this outcome of a handler.
pub(crate) fn attempt_end<R: Serialize>(
    attempt: &dyn AttemptServices,
    outcome: Outcome<R>,
    classify: impl Fn(&(dyn Error + 'static)) -> Class,
) -> AttemptEnd {
    let completed = outcome.and_then(|value| {
        Json::from_value("result", &value).map_err(|error| Stop::invalid("invalid_result", error))
    });

    match completed {
        Ok(result) => AttemptEnd::Completed {
            result: Some(result),
            result_url: attempt.result_url(),
        },
        Err(stop) => stopped(attempt, stop, classify),
    }
}

fn stopped(
    attempt: &dyn AttemptServices,
    stop: Stop,
    classify: impl Fn(&(dyn Error + 'static)) -> Class,
) -> AttemptEnd {
    let task = attempt.task();

    match stop.0 {
        StopKind::Retry { error, after: None } => retry(task, failure("retryable", &error)),
        StopKind::Retry {
            error,
            after: Some(after),
        } => AttemptEnd::Failed {
            failure: failure("retryable", &error),
            retry_in_ms: Some(bounded_millis(after)),
        },
        StopKind::RateLimited {
            error,
            retry_after,
            key,
        } => {
            if let Some(key) = key {
                attempt.note_limit(&key);
            }
            rate_limited(&error, retry_after)
        }
        StopKind::Snooze {
            after,
            reason,
            class,
        } => AttemptEnd::Snoozed {
            reason: reason.map(|message| Failure {
                class: class.to_owned(),
                message,
                detail: None,
            }),
            delay_ms: bounded_millis(after),
        },
        StopKind::Fatal { class, error } => fatal(failure(class, &error)),
        StopKind::Cancelled => AttemptEnd::Cancelled,
        StopKind::WaitForChildren => AttemptEnd::Completed {
            result: None,
            result_url: None,
        },
        StopKind::HandBack => AttemptEnd::HandedBack,
        StopKind::Unknown(error) => classified(task, &error, classify),
    }
}

/// The end for an error that the handler met with `?`.
fn classified(
    task: &TaskRecord,
    error: &AnyError,
    classify: impl Fn(&(dyn Error + 'static)) -> Class,
) -> AttemptEnd {
    let is_store_down = error
        .downcast_ref::<StoreError>()
        .is_some_and(StoreError::is_transient);
    let class = if is_store_down {
        Class::Retryable
    } else {
        classify(&**error)
    };

    match class {
        Class::Retryable => retry(task, failure("retryable", error)),
        Class::RateLimited { retry_after } => rate_limited(error, retry_after),
        Class::Fatal => {
            tracing::warn!(
                %error,
                task_id = %task.id.0,
                "handler failed with an error that is fatal by its class; the task will not be \
                 retried"
            );
            fatal(failure("fatal", error))
        }
    }
}

/// A failure that is worth another attempt, after the wait of the task's retry policy.
pub fn retry(task: &TaskRecord, failure: Failure) -> AttemptEnd {
    let wait_ms = task.retry.delay_ms(task.retry_count + 1, random::unit());
    AttemptEnd::Failed {
        failure,
        retry_in_ms: Some(wait_ms),
    }
}

const fn fatal(failure: Failure) -> AttemptEnd {
    AttemptEnd::Failed {
        failure,
        retry_in_ms: None,
    }
}

fn rate_limited(error: &AnyError, retry_after: Duration) -> AttemptEnd {
    AttemptEnd::Snoozed {
        reason: Some(failure("rate_limited", error)),
        delay_ms: bounded_millis(retry_after),
    }
}

fn failure(class: &str, error: &AnyError) -> Failure {
    Failure {
        class: class.to_owned(),
        message: error.to_string(),
        detail: chain(&**error),
    }
}

/// The wait in milliseconds, at most the longest that the store takes.
fn bounded_millis(wait: Duration) -> u64 {
    millis(wait).min(bounds::DURATION_MS)
}
