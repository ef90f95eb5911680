use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::progress::Steps;
use longhaul::{Context, Outcome, Task};

/// `sample.checkpoint`: saves a checkpoint after each step, and continues from the last one.
#[derive(Debug)]
pub struct Checkpoint;

/// The steps done, and where the last attempt started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resumed {
    /// All steps.
    pub steps: u32,
    /// The steps that earlier attempts had done.
    pub resumed_from: u32,
}

impl Task for Checkpoint {
    const TYPE: &'static str = "sample.checkpoint";
    type Params = Steps;
    type Output = Resumed;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Resumed> {
        let Steps { steps, step_ms } = ctx.params;
        let resumed_from: u32 = ctx.checkpoint()?.unwrap_or(0);
        for step in resumed_from + 1..=steps {
            ctx.sleep(Duration::from_millis(step_ms)).await?;
            ctx.save_checkpoint(&step).await?;
            ctx.progress(longhaul::Progress::of(step as usize, steps as usize))
                .await?;
        }

        Ok(Resumed {
            steps,
            resumed_from,
        })
    }
}
