//! The context of a typed handler: its parameters, and the job with everything that it can ask for.

use crate::{job::Job, task::Task};

/// What a handler is given. It dereferences to its [`Job`].
pub struct Context<T: Task> {
    /// What the submitter handed in.
    pub params: T::Params,
    job: Job,
}

impl<T: Task> std::fmt::Debug for Context<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("type", &T::TYPE)
            .field("task", &self.job.id())
            .finish()
    }
}

impl<T: Task> Context<T> {
    pub(crate) fn new(params: T::Params, job: Job) -> Self {
        Self { params, job }
    }

    /// The parameters and the job, apart.
    pub fn into_parts(self) -> (T::Params, Job) {
        (self.params, self.job)
    }
}

impl<T: Task> std::ops::Deref for Context<T> {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}
