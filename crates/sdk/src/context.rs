//! What a handler of a [`Task`] is given: the parameters, and the job.

use std::fmt;
use std::ops::Deref;

use crate::{job::Job, task::Task};

/// What a handler is given. It dereferences to its [`Job`].
pub struct Context<T: Task> {
    /// What the submitter passed in.
    pub params: T::Params,
    job: Job,
}

impl<T: Task> fmt::Debug for Context<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

    /// Takes the context apart, into the parameters and the job.
    pub fn into_parts(self) -> (T::Params, Job) {
        (self.params, self.job)
    }
}

impl<T: Task> Deref for Context<T> {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}
