//! What submissions and handles of one process share.

use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use futures::future::BoxFuture;
use longhaul_domain::{
    NewTask, RunAt, Status, StoreError, TaskId, TaskInfo,
    contract::{
        StreamLog,
        store::{Access, Moved, Submitted},
    },
    event::EventKind,
};
use longhaul_engine::{Engine, Files, Submissions, metrics::Listener, routing::Routing};

use crate::{attempt::Hook, hooks::Hooks, registry::Registry};

/// The node of this process, as a submit sees it.
pub trait EagerStart: fmt::Debug + Send + Sync {
    /// Warns about a task that no node will ever run: this node is the only one and does not serve
    /// it.
    fn warn_if_not_served(&self, task: &NewTask);

    /// Submits the task and claims it in the same transaction, if a slot is free for it. Returns
    /// the task otherwise.
    fn submit_and_start(
        self: Arc<Self>,
        task: NewTask,
    ) -> Result<BoxFuture<'static, Result<Submitted, StoreError>>, Box<NewTask>>;
}

/// Submits tasks, cancels them and calls the hooks that belong to that. Clones share everything.
#[derive(Debug, Clone)]
pub struct Client {
    /// Commands and queries on the store.
    pub engine: Arc<Engine>,
    /// What tasks write while they run.
    pub streams: Arc<dyn StreamLog>,
    /// The files that tasks made.
    pub files: Arc<Files>,
    /// Which queue a task goes to when its submitter names none.
    pub routing: Routing,
    /// The types that this process knows.
    pub registry: Registry,
    /// The hooks that run now.
    pub hooks: Hooks,
    node: Option<Weak<dyn EagerStart>>,
}

impl Client {
    /// A client of a process that may have no node.
    pub fn new(
        engine: Arc<Engine>,
        streams: Arc<dyn StreamLog>,
        files: Arc<Files>,
        routing: Routing,
        registry: Registry,
    ) -> Self {
        Self {
            engine,
            streams,
            files,
            routing,
            registry,
            hooks: Hooks::default(),
            node: None,
        }
    }

    /// The same client in a process with a node. What it submits may start at once.
    #[must_use]
    pub fn with_node(mut self, node: Weak<dyn EagerStart>) -> Self {
        self.node = Some(node);
        self
    }

    fn node(&self) -> Option<Arc<dyn EagerStart>> {
        self.node.as_ref().and_then(Weak::upgrade)
    }

    fn warn_if_not_served(&self, task: &NewTask) {
        if let Some(node) = self.node() {
            node.warn_if_not_served(task);
        }
    }

    /// Submits one task. The node of this process starts it at once if it can.
    async fn submit_or_start(&self, task: NewTask) -> Result<Submitted, StoreError> {
        let is_plain =
            task.run_at == RunAt::Now && task.idempotency.is_none() && task.parent.is_none();

        let task = match self.node() {
            Some(node) if is_plain => match node.submit_and_start(task) {
                Ok(submitted) => return submitted.await,
                Err(task) => *task,
            },
            Some(_) | None => task,
        };

        self.engine.submit(task).await
    }

    fn count_hook(&self, event: EventKind) {
        self.engine.metrics().processed(Listener::Hooks, event);
    }
}

#[async_trait]
impl Submissions for Client {
    /// Submits one task, and calls its type's hook if the task is new.
    async fn submit(&self, task: NewTask) -> Result<Submitted, StoreError> {
        let hook = self.registry.queued_hook(&task);
        self.warn_if_not_served(&task);
        let submitted = self.submit_or_start(task).await?;

        if let Some(hook) = hook
            && !submitted.repeated
        {
            self.count_hook(EventKind::Submitted);
            self.hooks.call_all(vec![hook(submitted.task_id)]);
        }

        Ok(submitted)
    }

    /// Submits all of the tasks, in order, or none, and calls the hooks of those that are new.
    async fn submit_many(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError> {
        let is_alike = |one: &NewTask, next: &NewTask| {
            (&one.task_type, &one.queue) == (&next.task_type, &next.queue)
        };
        for alike in tasks.chunk_by(is_alike) {
            self.warn_if_not_served(&alike[0]);
        }

        let hooks: Vec<_> = tasks
            .iter()
            .map(|task| self.registry.queued_hook(task))
            .collect();
        let submitted = self.engine.submit_many(tasks).await?;

        let mut calls = Vec::new();
        for (hook, made) in hooks.into_iter().zip(&submitted) {
            if let Some(hook) = hook
                && !made.repeated
            {
                self.count_hook(EventKind::Submitted);
                calls.push(hook(made.task_id));
            }
        }
        self.hooks.call_all(calls);

        Ok(submitted)
    }

    /// Cancels a task and all below it. A task that has ended stays as it is. A type that is not
    /// cancellable is refused while it runs.
    ///
    /// The hooks of tasks that did not run are called here. The hook of a task that ran is called
    /// when its attempt ends.
    async fn cancel(&self, access: &Access, id: TaskId) -> Result<Status, StoreError> {
        let done = self.engine.cancel(access, id).await?;
        let mut calls = Vec::new();
        for Moved { was, task } in &done.moved {
            let did_not_run = task.status == Status::Cancelled && *was != Status::Running;
            if did_not_run && let Some(handler) = self.registry.handler(&task.task_type) {
                self.count_hook(EventKind::Cancelled);
                calls.push(handler.hook(Hook::Cancelled, Arc::new(TaskInfo::of(task))));
            }
        }
        self.hooks.call_all(calls);

        Ok(done.status)
    }
}
