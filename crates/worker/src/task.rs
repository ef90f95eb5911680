//! The task type: what a user writes.

use std::error::Error;

pub use longhaul_engine::TaskInfo;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    children::Children,
    context::Context,
    settings::TypeSettings,
    stop::{Class, Outcome, Stop, classify_by_type},
};

/// A task type: a name bound to typed parameters, a typed result and the code between.
///
/// Only [`TYPE`](Self::TYPE), the two types and [`run`](Self::run) are needed:
///
/// ```
/// use longhaul_worker::{Context, Outcome, Task};
/// # use serde::{Deserialize, Serialize}; use schemars::JsonSchema;
///
/// #[derive(Serialize, Deserialize, JsonSchema)]
/// struct Text { text: String }
///
/// struct CountWords;
///
/// impl Task for CountWords {
///     const TYPE: &'static str = "count_words";
///     type Params = Text;
///     type Output = usize;
///
///     async fn run(&self, ctx: Context<Self>) -> Outcome<usize> {
///         Ok(ctx.params.text.split_whitespace().count())
///     }
/// }
/// ```
pub trait Task: Send + Sync + Sized + 'static {
    /// The name that submitters use. Two handlers of one name are refused at start.
    const TYPE: &'static str;
    /// Whether [`finish`](Self::finish) is to be called when the last child has ended.
    const FINISH_STEP: bool = false;
    /// Whether people may cancel a task of this type while it runs.
    const CANCELLABLE: bool = true;
    /// What a submitter hands in. It is kept as JSON.
    type Params: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;
    /// The result. It is kept as JSON.
    type Output: Serialize + DeserializeOwned + JsonSchema + Send + 'static;

    /// One attempt.
    fn run(&self, ctx: Context<Self>) -> impl Future<Output = Outcome<Self::Output>> + Send;

    /// The step of a parent that sees its children's ends and makes the result. Called only with
    /// [`FINISH_STEP`](Self::FINISH_STEP).
    fn finish(
        &self,
        ctx: Context<Self>,
        children: Children,
    ) -> impl Future<Output = Outcome<Self::Output>> + Send {
        let _ = (ctx, children);
        async {
            Err(Stop::fatal(
                "the type says FINISH_STEP and has no `finish`: write one, or leave the constant out",
            ))
        }
    }

    /// What the type asks for when its submitter says nothing else.
    fn settings(&self) -> TypeSettings {
        TypeSettings::default()
    }

    /// What an error that `?` met means. Overridden by types that know the errors of their libraries.
    fn classify(&self, error: &(dyn Error + 'static)) -> Class {
        classify_by_type(error)
    }

    // Hooks. They are called after the change is committed, by the process that made it, and may be missed when that
    // process dies: what must happen belongs into the task itself.

    /// The task was submitted by this process, alone, with others or as a child; not in a transaction of the caller's.
    fn on_queued(&self, _task: &TaskInfo) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// An attempt has started.
    fn on_running(&self, _task: &TaskInfo) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// An attempt has ended its task with a result. Not called for a parent that its last child ends, which may be
    /// anywhere: a finish step hears of that.
    fn on_completed(&self, _task: &TaskInfo) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// An attempt has failed; there may be another one.
    fn on_failed(&self, _task: &TaskInfo, _error: &str) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// That was the last one: the task is `FAILED` or a dead letter, until a person retries it. Called after
    /// [`Self::on_failed`]. Not called for ends that no attempt told of: by a deadline, by the deaths of its nodes, by a silence
    /// that was too long, nor for a parent that its last child ends.
    fn on_given_up(&self, _task: &TaskInfo, _error: &str) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// The task was cancelled, itself or with its parent: while it ran, told by the process that ran it, but not for an attempt
    /// that another one has taken over from; while it was queued, retrying or waiting for children, by the process that
    /// cancelled it, if that knows the type. Not called for tasks that were not running when a bulk cancel, or their parent's
    /// own handler, cancelled them.
    fn on_cancelled(&self, _task: &TaskInfo) -> impl Future<Output = ()> + Send {
        async {}
    }
}
