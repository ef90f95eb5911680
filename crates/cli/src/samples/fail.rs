use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::STEP_MS;
use longhaul::{Context, Outcome, Stop, Task};

/// How long a rate limit lasts if the parameters do not say.
const RETRY_AFTER_MS: u64 = 1_000;

/// `sample.fail`: fails in one of the ways in which tasks can fail.
#[derive(Debug)]
pub struct Fail;

/// How it fails, and how often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failing {
    /// How it fails.
    pub kind: FailKind,
    /// How many attempts fail; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// How long to wait after a retryable failure, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = STEP_MS))]
    pub retry_after_ms: Option<u64>,
}

// The variants have no doc comments: with them, the schema would list four constants instead of one
// enumeration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailKind {
    Retryable,
    Fatal,
    RateLimited,
    Panic,
}

/// The attempt that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Succeeded {
    /// Numbered from 1.
    pub attempt: u32,
}

impl Task for Fail {
    const TYPE: &'static str = "sample.fail";
    type Params = Failing;
    type Output = Succeeded;

    #[expect(clippy::panic, reason = "a sample of a handler that panics")]
    async fn run(&self, ctx: Context<Self>) -> Outcome<Succeeded> {
        let attempt = ctx.attempt();
        if ctx.params.times.is_some_and(|times| attempt > times) {
            return Ok(Succeeded { attempt });
        }

        let message = format!("attempt {attempt} fails, as it was asked to");
        let after = ctx.params.retry_after_ms.map(Duration::from_millis);
        ctx.warn(&message);

        Err(match (ctx.params.kind, after) {
            (FailKind::Retryable, None) => Stop::retryable(message),
            (FailKind::Retryable, Some(after)) => Stop::retry_after(message, after),
            (FailKind::RateLimited, after) => Stop::rate_limited(
                message,
                after.unwrap_or(Duration::from_millis(RETRY_AFTER_MS)),
            ),
            (FailKind::Fatal, _) => Stop::fatal(message),
            (FailKind::Panic, _) => panic!("{message}"),
        })
    }
}
