use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Fail, STEP_MS, Sleep,
    fail::{FailKind, Failing},
    sleep::SleepTime,
};
use longhaul::{Children, Context, Outcome, Stop, Task};

/// The most children of one task.
const CHILDREN: u32 = 10_000;

/// `sample.fanout`: submits children and counts how they ended.
#[derive(Debug)]
pub struct Fanout;

/// How many children, and what they do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FanoutParams {
    /// How many.
    #[schemars(range(max = CHILDREN))]
    pub children: u32,
    /// How often a child fails: 3 is every third. By default none fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub fail_every: Option<u32>,
    /// How long each other child takes, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = STEP_MS))]
    pub child_ms: Option<u64>,
}

/// How the children ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCount {
    /// Children with a result.
    pub completed: usize,
    /// Children without one.
    pub failed: usize,
}

impl Task for Fanout {
    const TYPE: &'static str = "sample.fanout";
    const FINISH_STEP: bool = true;
    type Params = FanoutParams;
    type Output = TaskCount;

    async fn run(&self, ctx: Context<Self>) -> Outcome<TaskCount> {
        let FanoutParams {
            children,
            fail_every,
            child_ms,
        } = ctx.params;
        let failing = fail_every.map_or(0, |every| children / every.max(1));
        let good = SleepTime {
            ms: child_ms.unwrap_or(0),
        };

        let bad = Failing {
            kind: FailKind::Fatal,
            times: None,
            retry_after_ms: None,
        };

        ctx.submit_all::<Sleep>((failing..children).map(|_| good.clone()))
            .await?;
        ctx.submit_all::<Fail>((0..failing).map(|_| bad.clone()))
            .await?;

        Err(Stop::wait_for_children())
    }

    async fn finish(&self, _ctx: Context<Self>, children: Children) -> Outcome<TaskCount> {
        Ok(TaskCount {
            completed: children.completed().count(),
            failed: children.failed().count(),
        })
    }
}
