//! The types that a process knows, each with the code that runs it.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, future::BoxFuture};
use longhaul_domain::{
    Invalid, Json, NewTask, Phase, StoreError, TaskId, bounds,
    contract::store::{Failure, Outcome as Ending},
};
use longhaul_engine::{Catalog, TaskInfo, catalog::TaskType, routing::Routing};
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    children::Children,
    context::Context,
    job::Job,
    progress::Progress,
    question::{Answers, Question},
    random,
    run::Run,
    settings::TypeSettings,
    stop::{AnyError, Class, Kind, Outcome, Stop, chain, classify_by_type},
    task::Task,
};

/// What is known of a type without running it.
#[derive(Debug, Clone)]
pub struct TypeInfo {
    /// The name that submitters use.
    pub name: String,
    /// What the type asks for.
    pub settings: TypeSettings,
    /// Whether people may cancel a task of this type while it runs.
    pub is_cancellable: bool,
    /// Whether the type has a `finish` step for parents.
    pub finish_step: bool,
    /// What fits as parameters.
    pub params_schema: Schema,
    /// What results look like.
    pub result_schema: Schema,
    /// What progress looks like.
    pub progress_schema: Schema,
}

/// What happened, for a type's hooks.
#[derive(Debug, Clone)]
pub(crate) enum Hook {
    Queued,
    Running,
    Completed,
    /// With the error, and whether there will be no other attempt.
    Failed(String, bool),
    Cancelled,
}

/// A type with its Rust types erased.
pub(crate) trait Handler: Send + Sync {
    fn info(&self) -> &TypeInfo;
    /// One attempt, from stored parameters to what the store is told.
    fn run(&self, run: Arc<Run>) -> BoxFuture<'static, Ending>;
    fn hook(&self, hook: Hook, task: Arc<TaskInfo>) -> BoxFuture<'static, ()>;
}

impl fmt::Debug for dyn Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.info().name)
    }
}

/// All types of a process, and who answers what their handlers ask.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    handlers: BTreeMap<String, Arc<dyn Handler>>,
    pub(crate) answers: Answers,
}

impl Registry {
    /// Adds a task type; a second one of the same name is refused.
    pub fn register<T: Task>(&mut self, task: T) -> Result<(), Invalid> {
        self.add(T::TYPE, Typed::new(task))
    }

    /// Adds a plain async function as a task type.
    pub fn register_fn<P, R, F, Fut>(
        &mut self,
        name: &str,
        settings: TypeSettings,
        run: F,
    ) -> Result<(), Invalid>
    where
        P: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static,
        R: Serialize + DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(P, Job) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome<R>> + Send + 'static,
    {
        let info = TypeInfo {
            name: name.to_owned(),
            is_cancellable: true,
            finish_step: false,
            params_schema: schema_for!(P),
            result_schema: schema_for!(R),
            progress_schema: progress_schema(&settings),
            settings,
        };
        self.add(
            name,
            Function {
                info,
                run: Arc::new(run),
                of: std::marker::PhantomData::<fn(P) -> R>,
            },
        )
    }

    /// Says who answers a question of handlers; a second one for the same question is refused.
    pub fn answer<Q, F, Fut, E>(&mut self, answer: F) -> Result<(), Invalid>
    where
        Q: Question,
        F: Fn(Q, Arc<TaskInfo>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Q::Answer, E>> + Send + 'static,
        E: Into<AnyError>,
    {
        self.answers.add(answer)
    }

    fn add(&mut self, name: &str, handler: impl Handler + 'static) -> Result<(), Invalid> {
        bounds::check_label("taskType", name)?;
        handler.info().settings.check(name)?;
        if self.handlers.contains_key(name) {
            let problem = format!("{name:?} is registered twice");
            return Err(Invalid::new(
                "taskType",
                problem,
                "one handler for each name",
            ));
        }
        self.handlers.insert(name.to_owned(), Arc::new(handler));
        Ok(())
    }

    /// What is known of the type of this name.
    pub fn info(&self, name: &str) -> Option<&TypeInfo> {
        self.handlers.get(name).map(|handler| handler.info())
    }

    /// All types, sorted by name.
    pub fn types(&self) -> impl Iterator<Item = &TypeInfo> {
        self.handlers.values().map(|handler| handler.info())
    }

    /// The types as a server knows them, which has no code of theirs.
    pub fn catalog(&self, routing: &Routing) -> Catalog {
        let known = self.types().map(|info| TaskType {
            name: info.name.clone(),
            queue: info.settings.queue.clone(),
            expected_duration: info.settings.expected_duration,
            max_attempts: info.settings.max_attempts,
            retry: info.settings.retry,
            timeout: info.settings.timeout,
            finish_step: info.finish_step,
            is_cancellable: info.is_cancellable,
            params_schema: info.params_schema.clone().to_value(),
            result_schema: info.result_schema.clone().to_value(),
            progress_schema: info.progress_schema.clone().to_value(),
        });
        Catalog::new(known, routing.clone())
    }

    pub(crate) fn handler(&self, name: &str) -> Option<Arc<dyn Handler>> {
        self.handlers.get(name).cloned()
    }

    /// The hook to be called once the task has its id.
    pub(crate) fn queued_hook(
        &self,
        task: &NewTask,
    ) -> Option<impl FnOnce(TaskId) -> BoxFuture<'static, ()> + use<>> {
        let handler = self.handler(&task.task_type)?;
        let (owner, task_type, queue) = (
            task.owner.to_string(),
            task.task_type.to_string(),
            task.queue.to_string(),
        );
        let (parent_id, correlation_id) = (
            task.parent.map(|lease| lease.task_id),
            task.correlation_id.clone(),
        );
        Some(move |id| {
            let info = TaskInfo {
                id,
                owner,
                task_type,
                queue,
                attempt: 0,
                parent_id,
                correlation_id,
            };
            handler.hook(Hook::Queued, Arc::new(info))
        })
    }
}

fn progress_schema(settings: &TypeSettings) -> Schema {
    settings
        .progress
        .clone()
        .unwrap_or_else(|| schema_for!(Progress))
}

/// A [`Task`] behind the erased face.
struct Typed<T> {
    task: Arc<T>,
    info: TypeInfo,
}

impl<T: Task> Typed<T> {
    fn new(task: T) -> Self {
        let settings = task.settings();
        let info = TypeInfo {
            name: T::TYPE.to_owned(),
            is_cancellable: T::CANCELLABLE,
            finish_step: T::FINISH_STEP,
            params_schema: schema_for!(T::Params),
            result_schema: schema_for!(T::Output),
            progress_schema: progress_schema(&settings),
            settings,
        };
        Self {
            task: Arc::new(task),
            info,
        }
    }
}

impl<T: Task> Handler for Typed<T> {
    fn info(&self) -> &TypeInfo {
        &self.info
    }

    fn run(&self, run: Arc<Run>) -> BoxFuture<'static, Ending> {
        let task = Arc::clone(&self.task);
        Box::pin(async move {
            let ended = attempt(&*task, &run).await;
            settle(&run, ended, |error| task.classify(error))
        })
    }

    fn hook(&self, hook: Hook, info: Arc<TaskInfo>) -> BoxFuture<'static, ()> {
        let task = Arc::clone(&self.task);
        Box::pin(async move {
            match hook {
                Hook::Queued => task.on_queued(&info).await,
                Hook::Running => task.on_running(&info).await,
                Hook::Completed => task.on_completed(&info).await,
                Hook::Failed(error, is_last) => {
                    let told = AssertUnwindSafe(task.on_failed(&info, &error))
                        .catch_unwind()
                        .await;
                    if is_last {
                        task.on_given_up(&info, &error).await;
                    }
                    told.unwrap_or_else(|panic| resume_unwind(panic));
                }
                Hook::Cancelled => task.on_cancelled(&info).await,
            }
        })
    }
}

async fn attempt<T: Task>(task: &T, run: &Arc<Run>) -> Outcome<T::Output> {
    let params = read_params(&run.task.parameters)
        .map_err(|error| Stop::invalid("invalid_parameters", error))?;
    let ctx = Context::new(params, Job(Arc::clone(run)));
    match run.task.phase {
        Phase::Run => task.run(ctx).await,
        Phase::Finish => {
            let children = Children::load(&*run.services.engine.store, run.task.id).await?;
            task.finish(ctx, children).await
        }
    }
}

/// A plain function behind the erased face.
struct Function<P, R, F> {
    info: TypeInfo,
    run: Arc<F>,
    of: std::marker::PhantomData<fn(P) -> R>,
}

impl<P, R, F, Fut> Handler for Function<P, R, F>
where
    P: DeserializeOwned + Send + 'static,
    R: Serialize + Send + 'static,
    F: Fn(P, Job) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome<R>> + Send + 'static,
{
    fn info(&self) -> &TypeInfo {
        &self.info
    }

    fn run(&self, run: Arc<Run>) -> BoxFuture<'static, Ending> {
        let function = Arc::clone(&self.run);
        Box::pin(async move {
            let ended = match read_params::<P>(&run.task.parameters) {
                Ok(params) => function(params, Job(Arc::clone(&run))).await,
                Err(error) => Err(Stop::invalid("invalid_parameters", error)),
            };
            settle(&run, ended, classify_by_type)
        })
    }

    fn hook(&self, _hook: Hook, _info: Arc<TaskInfo>) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

fn read_params<P: DeserializeOwned>(params: &Json) -> Result<P, Invalid> {
    params.read().map_err(|error| {
        Invalid::new(
            "parameters",
            format!("do not fit: {error}"),
            "what the type's schema says",
        )
    })
}

/// What the store is told of a handler's end.
fn settle<R: Serialize>(
    run: &Run,
    ended: Outcome<R>,
    classify: impl Fn(&(dyn std::error::Error + 'static)) -> Class,
) -> Ending {
    let stop = match ended {
        Ok(value) => match Json::from_value("result", &value) {
            Ok(result) => {
                return Ending::Completed {
                    result: Some(result),
                    result_url: run.result_url.get().cloned(),
                };
            }
            Err(error) => Stop::invalid("invalid_result", error),
        },
        Err(stop) => stop,
    };
    match stop.0 {
        Kind::Retry { error, after } => retry(run, &error, after),
        Kind::RateLimited {
            error,
            retry_after,
            key,
        } => {
            if let Some(key) = key {
                run.note_limit(&key);
            }
            limited(&error, retry_after)
        }
        Kind::Snooze {
            after,
            reason,
            class,
        } => {
            let reason = reason.map(|message| Failure {
                class: class.to_owned(),
                message,
                detail: None,
            });
            Ending::Snoozed {
                reason,
                delay_ms: millis(after),
            }
        }
        Kind::Fatal { class, error } => Ending::Failed {
            failure: failure(class, &error),
            retry_in_ms: None,
        },
        Kind::Cancelled => Ending::Cancelled,
        Kind::WaitForChildren => Ending::Completed {
            result: None,
            result_url: None,
        },
        Kind::HandBack => Ending::HandedBack,
        Kind::Unknown(error) => unknown(run, &error, classify),
    }
}

fn unknown(
    run: &Run,
    error: &AnyError,
    classify: impl Fn(&(dyn std::error::Error + 'static)) -> Class,
) -> Ending {
    let store_is_away = error
        .downcast_ref::<StoreError>()
        .is_some_and(StoreError::is_transient);
    let class = if store_is_away {
        Class::Retryable
    } else {
        classify(&**error)
    };
    match class {
        Class::Retryable => retry(run, error, None),
        Class::RateLimited { retry_after } => limited(error, retry_after),
        Class::Fatal => {
            tracing::warn!(%error, task_id = %run.task.id.0, "an error that nobody classifies is fatal");
            Ending::Failed {
                failure: failure("fatal", error),
                retry_in_ms: None,
            }
        }
    }
}

pub(crate) fn retry(run: &Run, error: &AnyError, after: Option<Duration>) -> Ending {
    let wait = after.map_or_else(
        || {
            run.task
                .retry
                .delay_ms(run.task.retry_count + 1, random::unit())
        },
        millis,
    );
    Ending::Failed {
        failure: failure("retryable", error),
        retry_in_ms: Some(wait),
    }
}

fn limited(error: &AnyError, retry_after: Duration) -> Ending {
    Ending::Snoozed {
        reason: Some(failure("rate_limited", error)),
        delay_ms: millis(retry_after),
    }
}

fn failure(class: &str, error: &AnyError) -> Failure {
    Failure {
        class: class.to_owned(),
        message: error.to_string(),
        detail: chain(&**error),
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis())
        .unwrap_or(bounds::DURATION_MS)
        .min(bounds::DURATION_MS)
}
