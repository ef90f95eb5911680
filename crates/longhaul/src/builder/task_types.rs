//! The task types of a program, and the answers to their questions.

use std::sync::Arc;

use longhaul_domain::Invalid;
use longhaul_sdk::{AnyError, Handler, Job, Outcome, Question, Task, TaskInfo, TypeSettings};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use super::Builder;

impl Builder {
    /// Adds a task type.
    #[must_use]
    pub fn register<T: Task>(mut self, task: T) -> Self {
        let registered = self.registry.register(task);
        self.noting(registered)
    }

    /// Adds a plain async function as a task type.
    #[must_use]
    pub fn register_fn<P, R, F, Fut>(mut self, name: &str, settings: TypeSettings, run: F) -> Self
    where
        P: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static,
        R: Serialize + DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(P, Job) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome<R>> + Send + 'static,
    {
        let registered = self.registry.register_fn(name, settings, run);
        self.noting(registered)
    }

    /// Adds a task type without a [`Task`], for example one that runs in another process.
    #[must_use]
    pub fn register_handler(mut self, handler: Arc<dyn Handler>) -> Self {
        let registered = self.registry.register_handler(handler);
        self.noting(registered)
    }

    /// Registers the answer to a question of handlers ([`Job::ask`]). It gets the asking task, too.
    ///
    /// ```no_run
    /// use longhaul::Question;
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct MayUse { picture: u64 }
    ///
    /// impl Question for MayUse {
    ///     const NAME: &'static str = "may_use";
    ///     type Answer = bool;
    /// }
    ///
    /// # async fn owner_of(picture: u64) -> std::io::Result<String> { Ok(String::new()) }
    /// # async fn example() -> Result<(), longhaul::StoreError> {
    /// let builder = longhaul::Longhaul::open("sqlite://tasks.db").await?;
    /// let builder = builder.answer(|question: MayUse, asker| async move {
    ///     owner_of(question.picture).await.map(|owner| owner == asker.owner)
    /// });
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn answer<Q, F, Fut, E>(mut self, answer: F) -> Self
    where
        Q: Question,
        F: Fn(Q, Arc<TaskInfo>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Q::Answer, E>> + Send + 'static,
        E: Into<AnyError>,
    {
        let registered = self.registry.answer(answer);
        self.noting(registered)
    }

    /// Keeps the first error, to report it at the start.
    pub(crate) fn noting(mut self, registered: Result<(), Invalid>) -> Self {
        self.problem = self.problem.or(registered.err());
        self
    }
}
