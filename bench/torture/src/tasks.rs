//! The task types. Each ends as planned and records its steps in the journal.

use std::sync::Arc;
use std::time::Duration;

use longhaul::{
    Builder, Children, Context, Job, Json, JsonSchema, Outcome, Stop, Task, TaskId, TypeSettings,
    operating::SqlStore,
};
use longhaul_domain::contract::store::{AttemptEnd, AttemptReport, TaskCommands as _};
use serde::{Deserialize, Serialize};

use crate::{
    journal::{End, Journal, Step},
    settings::{MANY_ATTEMPTS, RETRY},
};

/// The parameters of a task. All types share them, so that the plan stays readable.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Work {
    /// The client's number of the task. Children have their parent's.
    pub(crate) n: u64,
    /// The number of a child.
    #[serde(default)]
    pub(crate) index: u32,
    /// The duration of the task or of each step.
    #[serde(default)]
    pub(crate) ms: u64,
    /// How often it fails before it completes.
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

/// A result, signed by its attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SignedResult {
    pub(crate) n: u64,
    pub(crate) attempt: u32,
    pub(crate) incarnation: String,
    pub(crate) value: u64,
}

/// What the handlers of one process share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) incarnation: String,
    pub(crate) journal: Journal,
    /// The store beside the engine, for late reports.
    pub(crate) store: SqlStore,
}

/// How the body of a handler ends.
enum Ended {
    Value(u64),
    Waits,
    Retry,
    Fatal,
    Stop(Stop),
}

impl From<Stop> for Ended {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl Shared {
    /// Runs one attempt: records its start, runs its body, records its end, and reports it.
    async fn attempt(
        &self,
        job: &Job,
        n: u64,
        resumed: u32,
        body: impl Future<Output = Ended>,
    ) -> Outcome<SignedResult> {
        let node = job.task().node_id.map(|node| node.0);
        self.note(job, Step::Start { node, resumed });
        let done = body.await;

        let end = match &done {
            Ended::Value(_) => End::Completed,
            Ended::Waits => End::Waits,
            Ended::Retry | Ended::Fatal => End::Failed,
            Ended::Stop(_) => End::Stopped,
        };

        let made = match done {
            Ended::Value(value) => Some(SignedResult {
                n,
                attempt: job.attempt(),
                incarnation: self.incarnation.clone(),
                value,
            }),
            Ended::Waits | Ended::Retry | Ended::Fatal | Ended::Stop(_) => None,
        };

        self.note(
            job,
            Step::Finish {
                end,
                made: made.clone(),
            },
        );

        match (done, made) {
            (Ended::Value(_), Some(made)) => {
                self.report_late(job, &made).await;
                Ok(made)
            }
            (Ended::Waits, _) => Err(Stop::wait_for_children()),
            (Ended::Retry, _) => Err(Stop::retryable("this attempt is planned to fail")),
            (Ended::Fatal | Ended::Value(_), _) => Err(Stop::fatal("this task is planned to fail")),
            (Ended::Stop(stop), _) => Err(stop),
        }
    }

    fn note(&self, job: &Job, step: Step) {
        self.journal.write(job.id().0, job.attempt(), step);
    }

    /// A worker that notices in time that its attempt was taken away does not report. One that does
    /// not notice would report. This one always does, so that every zombie attempts its write.
    async fn report_late(&self, job: &Job, made: &SignedResult) {
        let Some(lease) = job.task().lease() else {
            return;
        };
        let Ok(result) = Json::from_value("result", made) else {
            return;
        };
        if !job.is_cancelled() {
            return;
        }

        let outcome = AttemptEnd::Completed {
            result: Some(result),
            result_url: None,
        };
        let report = AttemptReport {
            lease,
            end: outcome,
        };
        if let Ok(verdicts) = self.store.finish_tasks(&[report]).await {
            let accepted = verdicts.iter().any(|verdict| verdict.is_accepted());
            self.note(job, Step::Late { accepted });
        }
    }
}

/// Registers every type.
pub(crate) fn register(builder: Builder, shared: &Arc<Shared>) -> Builder {
    let shared = || Arc::clone(shared);
    builder
        .register(Echo(shared()))
        .register(Sleep(shared()))
        .register(Flaky(shared()))
        .register(Fatal(shared()))
        .register(Steps(shared()))
        .register(Fan(shared()))
        .register(Leaf(shared()))
        .register(Patient(shared()))
}

/// A submit over the API cannot set a retry policy, so the type has it.
fn planned_retries() -> TypeSettings {
    TypeSettings::new().retry(RETRY)
}

/// Completes at once.
pub(crate) struct Echo(Arc<Shared>);

impl Task for Echo {
    const TYPE: &'static str = "echo";
    type Params = Work;
    type Output = SignedResult;

    async fn run(&self, ctx: Context<Self>) -> Outcome<SignedResult> {
        let n = ctx.params.n;
        self.0.attempt(&ctx, n, 0, async { Ended::Value(n) }).await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries()
    }
}

/// Takes a while and ignores stops, so that it becomes a zombie when its task is taken away.
pub(crate) struct Sleep(Arc<Shared>);

impl Task for Sleep {
    const TYPE: &'static str = "sleep";
    type Params = Work;
    type Output = SignedResult;

    async fn run(&self, ctx: Context<Self>) -> Outcome<SignedResult> {
        let Work { n, ms, .. } = ctx.params;
        let body = async {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ended::Value(n)
        };
        self.0.attempt(&ctx, n, 0, body).await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries()
    }
}

/// Fails as often as planned, by the store's count.
pub(crate) struct Flaky(Arc<Shared>);

impl Task for Flaky {
    const TYPE: &'static str = "flaky";
    type Params = Work;
    type Output = SignedResult;

    async fn run(&self, ctx: Context<Self>) -> Outcome<SignedResult> {
        let Work { n, failures, .. } = ctx.params;
        let fails = ctx.task().retry_count < failures;
        let body = async { if fails { Ended::Retry } else { Ended::Value(n) } };
        self.0.attempt(&ctx, n, 0, body).await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries()
    }
}

/// Fails without a retry.
pub(crate) struct Fatal(Arc<Shared>);

impl Task for Fatal {
    const TYPE: &'static str = "fatal";
    type Params = Work;
    type Output = SignedResult;

    async fn run(&self, ctx: Context<Self>) -> Outcome<SignedResult> {
        self.0
            .attempt(&ctx, ctx.params.n, 0, async { Ended::Fatal })
            .await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries()
    }
}

/// Saves a checkpoint after each step and resumes from the last one.
pub(crate) struct Steps(Arc<Shared>);

impl Steps {
    async fn run_from(&self, ctx: &Context<Self>, resumed: u32) -> Result<u64, Stop> {
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
    type Output = SignedResult;

    async fn run(&self, ctx: Context<Self>) -> Outcome<SignedResult> {
        let resumed = ctx.checkpoint::<u32>()?.unwrap_or(0);
        let body = async {
            self.run_from(&ctx, resumed)
                .await
                .map_or_else(Ended::from, Ended::Value)
        };
        self.0.attempt(&ctx, ctx.params.n, resumed, body).await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries()
    }
}

/// A parent: submits its children and adds up their results.
pub(crate) struct Fan(Arc<Shared>);

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
    type Output = SignedResult;

    async fn run(&self, ctx: Context<Self>) -> Outcome<SignedResult> {
        let body = async {
            self.fan_out(&ctx)
                .await
                .map_or_else(Ended::from, |_| Ended::Waits)
        };
        self.0.attempt(&ctx, ctx.params.n, 0, body).await
    }

    async fn finish(&self, ctx: Context<Self>, children: Children) -> Outcome<SignedResult> {
        let results = children.results::<Leaf>();
        let sum = |made: Vec<SignedResult>| Ended::Value(made.iter().map(|made| made.value).sum());
        self.0
            .attempt(&ctx, ctx.params.n, 0, async {
                results.map_or_else(Ended::from, sum)
            })
            .await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries()
    }
}

/// A child. As many as planned fail without a retry, the first ones.
pub(crate) struct Leaf(Arc<Shared>);

impl Task for Leaf {
    const TYPE: &'static str = "leaf";
    type Params = Work;
    type Output = SignedResult;

    async fn run(&self, ctx: Context<Self>) -> Outcome<SignedResult> {
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
                Ended::Fatal
            } else {
                Ended::Value(leaf_value(index))
            }
        };

        self.0.attempt(&ctx, n, 0, body).await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries().max_attempts(MANY_ATTEMPTS)
    }
}

/// The result of the child of this number.
pub(crate) fn leaf_value(index: u32) -> u64 {
    u64::from(index) + 1
}

/// Waits to be cancelled.
pub(crate) struct Patient(Arc<Shared>);

impl Task for Patient {
    const TYPE: &'static str = "patient";
    type Params = Work;
    type Output = SignedResult;

    async fn run(&self, ctx: Context<Self>) -> Outcome<SignedResult> {
        let body = async {
            ctx.cancelled().await;
            Ended::Stop(ctx.check().err().unwrap_or_else(Stop::cancelled))
        };
        self.0.attempt(&ctx, ctx.params.n, 0, body).await
    }

    fn settings(&self) -> TypeSettings {
        planned_retries()
    }
}
