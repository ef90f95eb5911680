//! The task types that a process knows, each with the code that runs it.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use async_trait::async_trait;
use futures::{FutureExt as _, future::BoxFuture};
use longhaul_domain::{
    Invalid, Json, NewTask, Phase, TaskId, TaskInfo, bounds, contract::store::AttemptEnd,
};
use longhaul_engine::{Catalog, catalog::TypeDefinition, routing::Routing};
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    attempt::{AttemptContext, Handler, Hook},
    context::Context,
    end::attempt_end,
    job::Job,
    progress::Progress,
    question::{Answers, Question},
    settings::TypeSettings,
    stop::{AnyError, Outcome, Stop, classify_by_type},
    task::Task,
};

/// A task type, without its code.
#[derive(Debug, Clone)]
pub struct TypeInfo {
    /// The name that submitters use.
    pub name: String,
    /// The type's own settings.
    pub settings: TypeSettings,
    /// Whether a task of this type can be cancelled while it runs.
    pub is_cancellable: bool,
    /// Whether the type has a `finish` step for parents.
    pub finish_step: bool,
    /// The schema of the parameters.
    pub params_schema: Schema,
    /// The schema of the result.
    pub result_schema: Schema,
    /// The schema of the progress.
    pub progress_schema: Schema,
}

/// The task types of a process, and the functions that answer their handlers' questions.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    handlers: BTreeMap<String, Arc<dyn Handler>>,
    answers: Answers,
}

impl Registry {
    /// Registers a task type. A second type of the same name is refused.
    pub fn register<T: Task>(&mut self, task: T) -> Result<(), Invalid> {
        self.register_handler(Arc::new(TypedHandler::new(task)))
    }

    /// Registers an async function as a task type.
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

        self.register_handler(Arc::new(FunctionHandler {
            info,
            run,
            of: PhantomData,
        }))
    }

    /// Registers the function that answers a question of handlers. A second function for the same
    /// question is refused.
    pub fn answer<Q, F, Fut, E>(&mut self, answer: F) -> Result<(), Invalid>
    where
        Q: Question,
        F: Fn(Q, Arc<TaskInfo>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Q::Answer, E>> + Send + 'static,
        E: Into<AnyError>,
    {
        self.answers.add(answer)
    }

    /// Registers a task type whose code is not a [`Task`]. A second type of the same name is
    /// refused.
    pub fn register_handler(&mut self, handler: Arc<dyn Handler>) -> Result<(), Invalid> {
        let name = handler.info().name.clone();
        bounds::check_label("taskType", &name)?;
        handler.info().settings.check(&name)?;

        if self.handlers.contains_key(&name) {
            let problem = format!("{name:?} is registered twice");
            return Err(Invalid::new(
                "taskType",
                problem,
                "one handler for each name",
            ));
        }

        self.handlers.insert(name, handler);
        Ok(())
    }

    /// The type of this name.
    pub fn info(&self, name: &str) -> Option<&TypeInfo> {
        self.handlers.get(name).map(|handler| handler.info())
    }

    /// All types, sorted by name.
    pub fn types(&self) -> impl Iterator<Item = &TypeInfo> {
        self.handlers.values().map(|handler| handler.info())
    }

    /// The types as a server knows them, without their code.
    pub fn catalog(&self, routing: &Routing) -> Catalog {
        let known = self.types().map(|info| TypeDefinition {
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

    /// The code of the type of this name.
    pub fn handler(&self, name: &str) -> Option<Arc<dyn Handler>> {
        self.handlers.get(name).cloned()
    }

    /// The functions that answer questions of handlers.
    pub const fn answers(&self) -> &Answers {
        &self.answers
    }

    /// The hook to call once the task has its id.
    pub(crate) fn queued_hook(
        &self,
        task: &NewTask,
    ) -> Option<impl FnOnce(TaskId) -> BoxFuture<'static, ()> + use<>> {
        let handler = self.handler(&task.task_type)?;
        let owner = task.owner.to_string();
        let task_type = task.task_type.to_string();
        let queue = task.queue.clone();
        let parent_id = task.parent.map(|lease| lease.task_id);
        let correlation_id = task.correlation_id.clone();

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

/// A [`Task`] as a [`Handler`].
struct TypedHandler<T> {
    task: Arc<T>,
    info: TypeInfo,
}

impl<T: Task> TypedHandler<T> {
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

    /// Runs the step that the task is in.
    async fn run_step(&self, attempt: &AttemptContext) -> Outcome<T::Output> {
        let params = read_params(attempt)?;
        let context = Context::new(params, Job::new(attempt.clone()));

        match attempt.task().phase {
            Phase::Run => self.task.run(context).await,
            Phase::Finish => {
                let children = attempt.children().await?;
                self.task.finish(context, children).await
            }
        }
    }
}

#[async_trait]
impl<T: Task> Handler for TypedHandler<T> {
    fn info(&self) -> &TypeInfo {
        &self.info
    }

    async fn run(&self, attempt: AttemptContext) -> AttemptEnd {
        let outcome = self.run_step(&attempt).await;
        attempt_end(&*attempt, outcome, |error| self.task.classify(error))
    }

    fn hook(&self, hook: Hook, info: Arc<TaskInfo>) -> BoxFuture<'static, ()> {
        let task = Arc::clone(&self.task);
        Box::pin(async move {
            match hook {
                Hook::Queued => task.on_queued(&info).await,
                Hook::Running => task.on_running(&info).await,
                Hook::Completed => task.on_completed(&info).await,
                Hook::Failed { error, is_last } => failed(&*task, &info, &error, is_last).await,
                Hook::Cancelled => task.on_cancelled(&info).await,
            }
        })
    }
}

/// A panic of `on_failed` does not skip `on_given_up`.
async fn failed<T: Task>(task: &T, info: &TaskInfo, error: &str, is_last: bool) {
    let failed = AssertUnwindSafe(task.on_failed(info, error));
    let failed = failed.catch_unwind().await;
    if is_last {
        task.on_given_up(info, error).await;
    }

    failed.unwrap_or_else(|panic| resume_unwind(panic));
}

/// An async function as a [`Handler`].
struct FunctionHandler<P, R, F> {
    info: TypeInfo,
    run: F,
    of: PhantomData<fn(P) -> R>,
}

#[async_trait]
impl<P, R, F, Fut> Handler for FunctionHandler<P, R, F>
where
    P: DeserializeOwned + Send + 'static,
    R: Serialize + Send + 'static,
    F: Fn(P, Job) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome<R>> + Send + 'static,
{
    fn info(&self) -> &TypeInfo {
        &self.info
    }

    async fn run(&self, attempt: AttemptContext) -> AttemptEnd {
        let outcome = match read_params::<P>(&attempt) {
            Ok(params) => (self.run)(params, Job::new(attempt.clone())).await,
            Err(stop) => Err(stop),
        };

        attempt_end(&*attempt, outcome, classify_by_type)
    }
}

fn read_params<P: DeserializeOwned>(attempt: &AttemptContext) -> Result<P, Stop> {
    let params: &Json = &attempt.task().parameters;
    params.read().map_err(|error| {
        let problem = format!("do not fit: {error}");
        let error = Invalid::new("parameters", problem, "what the type's schema says");
        Stop::invalid("invalid_parameters", error)
    })
}
