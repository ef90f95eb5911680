//! The task types of the torture: each ends in a way that the plan knows, and writes down what it does.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longhaul::{
    Builder, Children, Context, Job, Json, JsonSchema, Outcome, Stop, Task, TaskId, TypeSettings,
};
use longhaul_domain::contract::{
    Store,
    store::{Outcome as Ending, Report},
};
use serde::{Deserialize, Serialize};

use crate::{
    journal::{End, Journal, Step},
    settings::{MANY_ATTEMPTS, RETRY},
};

/// What a task is to do. One shape for all types, so that the plan stays readable.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Work {
    /// The client's number of the task; children carry their parent's.
    pub(crate) n: u64,
    /// Which child it is.
    #[serde(default)]
    pub(crate) index: u32,
    /// How long it takes, or each of its steps.
    #[serde(default)]
    pub(crate) ms: u64,
    /// How often it fails before it succeeds.
    #[serde(default)]
    pub(crate) failures: u32,
    #[serde(default)]
    pub(crate) steps: u32,
    #[serde(default)]
    pub(crate) children: u32,
    /// How many of the children fail for good.
    #[serde(default)]
    pub(crate) failing: u32,
    #[serde(default)]
    pub(crate) padding: String,
}

/// A result, signed by the attempt that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Made {
    pub(crate) n: u64,
    pub(crate) attempt: u32,
    pub(crate) incarnation: String,
    pub(crate) value: u64,
}

/// What the handlers of one process share.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) incarnation: String,
    pub(crate) journal: Journal,
    /// There once the worker runs.
    pub(crate) store: OnceLock<Arc<dyn Store>>,
}

/// How the body of a handler ends.
enum Done {
    Value(u64),
    Waits,
    Retry,
    Fatal,
    Stop(Stop),
}

impl From<Stop> for Done {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl Site {
    /// One attempt: its start is written down, then its body runs, then its end is written down, then it is told.
    async fn attempt(
        &self,
        job: &Job,
        n: u64,
        resumed: u32,
        body: impl Future<Output = Done>,
    ) -> Outcome<Made> {
        let node = job.task().node_id.map(|node| node.0);
        self.note(job, Step::Start { node, resumed });
        let done = body.await;
        let end = match &done {
            Done::Value(_) => End::Completed,
            Done::Waits => End::Waits,
            Done::Retry | Done::Fatal => End::Failed,
            Done::Stop(_) => End::Stopped,
        };
        let made = match done {
            Done::Value(value) => Some(Made {
                n,
                attempt: job.attempt(),
                incarnation: self.incarnation.clone(),
                value,
            }),
            Done::Waits | Done::Retry | Done::Fatal | Done::Stop(_) => None,
        };
        self.note(
            job,
            Step::Finish {
                end,
                made: made.clone(),
            },
        );
        match (done, made) {
            (Done::Value(_), Some(made)) => {
                self.report_late(job, &made).await;
                Ok(made)
            }
            (Done::Waits, _) => Err(Stop::wait_for_children()),
            (Done::Retry, _) => Err(Stop::retryable("this attempt is planned to fail")),
            (Done::Fatal | Done::Value(_), _) => Err(Stop::fatal("this task is planned to fail")),
            (Done::Stop(stop), _) => Err(stop),
        }
    }

    fn note(&self, job: &Job, step: Step) {
        self.journal.write(job.id().0, job.attempt(), step);
    }

    /// A worker that hears in time that its attempt no longer counts keeps quiet. One that does not would report, so
    /// this one always does: every zombie tries its write.
    async fn report_late(&self, job: &Job, made: &Made) {
        let (Some(store), Some(lease)) = (self.store.get(), job.task().lease()) else {
            return;
        };
        let Ok(result) = Json::from_value("result", made) else {
            return;
        };
        if !job.is_cancelled() {
            return;
        }
        let outcome = Ending::Completed {
            result: Some(result),
            result_url: None,
        };
        if let Ok(verdicts) = store.finish_tasks(&[Report { lease, outcome }]).await {
            self.note(
                job,
                Step::Late {
                    accepted: verdicts.iter().any(|verdict| verdict.is_accepted()),
                },
            );
        }
    }
}

/// Registers every type.
pub(crate) fn register(builder: Builder, site: &Arc<Site>) -> Builder {
    let site = || Arc::clone(site);
    builder
        .register(Echo(site()))
        .register(Sleep(site()))
        .register(Flaky(site()))
        .register(Fatal(site()))
        .register(Steps(site()))
        .register(Fan(site()))
        .register(Leaf(site()))
        .register(Patient(site()))
}

/// The API takes no retry policy with an order, so it is the type's.
fn planned_retries() -> TypeSettings {
    TypeSettings::new().retry(RETRY)
}

/// Succeeds at once.
pub(crate) struct Echo(Arc<Site>);

impl Task for Echo {
    const TYPE: &'static str = "echo";
    type Params = Work;
    type Output = Made;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Made> {
        let n = ctx.params.n;
        self.0.attempt(&ctx, n, 0, async { Done::Value(n) }).await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries()
    }
}

/// Takes a while and never listens: whoever takes its task away makes a zombie of it.
pub(crate) struct Sleep(Arc<Site>);

impl Task for Sleep {
    const TYPE: &'static str = "sleep";
    type Params = Work;
    type Output = Made;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Made> {
        let Work { n, ms, .. } = ctx.params;
        let body = async {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Done::Value(n)
        };
        self.0.attempt(&ctx, n, 0, body).await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries()
    }
}

/// Fails as often as the plan says, by the store's own count.
pub(crate) struct Flaky(Arc<Site>);

impl Task for Flaky {
    const TYPE: &'static str = "flaky";
    type Params = Work;
    type Output = Made;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Made> {
        let Work { n, failures, .. } = ctx.params;
        let is_to_fail = ctx.task().retry_count < failures;
        self.0
            .attempt(&ctx, n, 0, async {
                if is_to_fail {
                    Done::Retry
                } else {
                    Done::Value(n)
                }
            })
            .await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries()
    }
}

/// Fails for good.
pub(crate) struct Fatal(Arc<Site>);

impl Task for Fatal {
    const TYPE: &'static str = "fatal";
    type Params = Work;
    type Output = Made;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Made> {
        self.0
            .attempt(&ctx, ctx.params.n, 0, async { Done::Fatal })
            .await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries()
    }
}

/// Saves a checkpoint after each step and goes on from the last one.
pub(crate) struct Steps(Arc<Site>);

impl Steps {
    async fn go_on(&self, ctx: &Context<Self>, resumed: u32) -> Result<u64, Stop> {
        for done in resumed + 1..=ctx.params.steps {
            tokio::time::sleep(Duration::from_millis(ctx.params.ms)).await;
            self.0.note(ctx, Step::Try { done });
            ctx.save_checkpoint(&done).await?;
            self.0.note(ctx, Step::Saved { done });
        }
        Ok(u64::from(ctx.params.steps))
    }
}

impl Task for Steps {
    const TYPE: &'static str = "steps";
    type Params = Work;
    type Output = Made;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Made> {
        let resumed = ctx.checkpoint::<u32>()?.unwrap_or(0);
        let body = async {
            self.go_on(&ctx, resumed)
                .await
                .map_or_else(Done::from, Done::Value)
        };
        self.0.attempt(&ctx, ctx.params.n, resumed, body).await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries()
    }
}

/// A parent: makes its children, and sums up what they made.
pub(crate) struct Fan(Arc<Site>);

impl Fan {
    async fn fan_out(&self, ctx: &Context<Self>) -> Result<Vec<TaskId>, Stop> {
        let Work {
            n,
            ms,
            children,
            failing,
            ..
        } = ctx.params;
        let child = |index| Work {
            n,
            index,
            ms,
            failing,
            ..Work::default()
        };
        ctx.submit_all::<Leaf>((0..children).map(child)).await
    }
}

impl Task for Fan {
    const TYPE: &'static str = "fan";
    const FINISH_STEP: bool = true;
    type Params = Work;
    type Output = Made;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Made> {
        let body = async {
            self.fan_out(&ctx)
                .await
                .map_or_else(Done::from, |_| Done::Waits)
        };
        self.0.attempt(&ctx, ctx.params.n, 0, body).await
    }

    async fn finish(&self, ctx: Context<Self>, children: Children) -> Outcome<Made> {
        let results = children.results::<Leaf>();
        let sum = |made: Vec<Made>| Done::Value(made.iter().map(|made| made.value).sum());
        self.0
            .attempt(&ctx, ctx.params.n, 0, async {
                results.map_or_else(Done::from, sum)
            })
            .await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries()
    }
}

/// A child. The first ones fail for good, as many as the plan says.
pub(crate) struct Leaf(Arc<Site>);

impl Task for Leaf {
    const TYPE: &'static str = "leaf";
    type Params = Work;
    type Output = Made;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Made> {
        let Work {
            n,
            index,
            ms,
            failing,
            ..
        } = ctx.params;
        let body = async {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            if index < failing {
                Done::Fatal
            } else {
                Done::Value(leaf_value(index))
            }
        };
        self.0.attempt(&ctx, n, 0, body).await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries().max_attempts(MANY_ATTEMPTS)
    }
}

/// What the child of this number makes.
pub(crate) fn leaf_value(index: u32) -> u64 {
    u64::from(index) + 1
}

/// Waits to be cancelled.
pub(crate) struct Patient(Arc<Site>);

impl Task for Patient {
    const TYPE: &'static str = "patient";
    type Params = Work;
    type Output = Made;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Made> {
        let body = async {
            ctx.cancelled().await;
            Done::Stop(ctx.check().err().unwrap_or_else(Stop::cancelled))
        };
        self.0.attempt(&ctx, ctx.params.n, 0, body).await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries()
    }
}
