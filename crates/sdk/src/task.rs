//! The task type: what a user writes.

use std::error::Error;

pub use longhaul_domain::TaskInfo;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    children::Children,
    context::Context,
    settings::TypeSettings,
    stop::{Class, Outcome, Stop, classify_by_type},
};

/// A task type: a name with typed parameters, a typed result, and the code that makes one from the
/// other.
///
/// Only [`TYPE`](Self::TYPE), the two types and [`run`](Self::run) are required:
///
/// ```
/// use longhaul_sdk::{Context, Outcome, Task};
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
    /// The name that submitters use. Registering two types of one name is an error.
    const TYPE: &'static str;
    /// Whether [`finish`](Self::finish) is called when the last child has ended.
    const FINISH_STEP: bool = false;
    /// Whether a task of this type can be cancelled while it runs.
    const CANCELLABLE: bool = true;
    /// The parameters, stored as JSON.
    type Params: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;
    /// The result, stored as JSON.
    type Output: Serialize + DeserializeOwned + JsonSchema + Send + 'static;

    /// Runs one attempt.
    fn run(&self, ctx: Context<Self>) -> impl Future<Output = Outcome<Self::Output>> + Send;

    /// Runs when all children have ended, and makes the parent's result. Called only with
    /// [`FINISH_STEP`](Self::FINISH_STEP).
    fn finish(
        &self,
        ctx: Context<Self>,
        children: Children,
    ) -> impl Future<Output = Outcome<Self::Output>> + Send {
        let _ = (ctx, children);
        async {
            Err(Stop::fatal(
                "the type sets FINISH_STEP but has no `finish`: write one, or remove the constant",
            ))
        }
    }

    /// The type's settings. A submitter may override some of them.
    fn settings(&self) -> TypeSettings {
        TypeSettings::default()
    }

    /// Classifies an error that `?` met. Override it for the errors of the libraries you use.
    fn classify(&self, error: &(dyn Error + 'static)) -> Class {
        classify_by_type(error)
    }

    // Hooks. The process that made a change calls them after the commit. They may be missed when
    // that process dies, so anything that must happen belongs into the task itself.

    /// This process submitted the task, alone, in a batch or as a child. Not called for a submit in
    /// the caller's own transaction.
    fn on_queued(&self, _task: &TaskInfo) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// An attempt has started.
    fn on_running(&self, _task: &TaskInfo) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// An attempt has completed the task. Not called for a parent that ends with its last child,
    /// which may end in any process. Use a finish step for that.
    fn on_completed(&self, _task: &TaskInfo) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// An attempt has failed. There may be another one.
    fn on_failed(&self, _task: &TaskInfo, _error: &str) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// The last attempt has failed: the task is `FAILED`, or a dead letter until it is
    /// retried. Called after [`Self::on_failed`].
    ///
    /// Not called when the task ends without a report of an attempt: by its deadline, because its
    /// nodes died, because its attempt was silent for too long, or when a parent ends with its last
    /// child.
    fn on_given_up(&self, _task: &TaskInfo, _error: &str) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// The task was cancelled, itself or with its parent.
    ///
    /// If it ran, the process that ran it calls this, unless another attempt has taken over. If it
    /// was queued, retrying or waiting for children, the process that cancelled it calls this, if
    /// it has the type registered. Not called for a task that was not running when a bulk cancel or
    /// its parent's own handler cancelled it.
    fn on_cancelled(&self, _task: &TaskInfo) -> impl Future<Output = ()> + Send {
        async {}
    }
}
