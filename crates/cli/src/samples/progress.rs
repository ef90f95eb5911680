use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{STEP_MS, STEPS};
use longhaul::{Context, Outcome, Task};

/// `sample.progress`: reports progress at each step.
#[derive(Debug)]
pub struct Progress;

/// How many steps, and how long each takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Steps {
    /// How many.
    #[schemars(range(max = STEPS))]
    pub steps: u32,
    /// How long each takes, in milliseconds.
    #[schemars(range(max = STEP_MS))]
    pub step_ms: u64,
}

/// The steps done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepsDone {
    /// How many.
    pub steps: u32,
}

impl Task for Progress {
    const TYPE: &'static str = "sample.progress";
    type Params = Steps;
    type Output = StepsDone;

    async fn run(&self, ctx: Context<Self>) -> Outcome<StepsDone> {
        let Steps { steps, step_ms } = ctx.params;
        for step in 1..=steps {
            ctx.sleep(Duration::from_millis(step_ms)).await?;
            let done = longhaul::Progress::of(step as usize, steps as usize);
            ctx.progress(done.message(format!("step {step} of {steps}")))
                .await?;
        }

        ctx.info(format!("{steps} steps done"));
        Ok(StepsDone { steps })
    }
}
