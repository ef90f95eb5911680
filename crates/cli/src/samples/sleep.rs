use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::STEP_MS;
use longhaul::{Context, Outcome, Task};

/// `sample.sleep`: waits, and ends when it is cancelled.
#[derive(Debug)]
pub struct Sleep;

/// How long it sleeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SleepTime {
    /// In milliseconds.
    #[schemars(range(max = STEP_MS))]
    pub ms: u64,
}

impl Task for Sleep {
    const TYPE: &'static str = "sample.sleep";
    type Params = SleepTime;
    type Output = SleepTime;

    async fn run(&self, ctx: Context<Self>) -> Outcome<SleepTime> {
        ctx.sleep(Duration::from_millis(ctx.params.ms)).await?;
        Ok(ctx.params.clone())
    }
}
