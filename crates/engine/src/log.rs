//! The log line of each step in a task's life. `docs/logging.md` lists them, and a test searches
//! the log for each.

use longhaul_domain::{Status, TaskId, TaskInfo, TaskRecord, event::EventKind};

/// The fields that every line about one task has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskFields<'a> {
    pub(crate) task_id: TaskId,
    pub(crate) task_type: &'a str,
    pub(crate) user_id: &'a str,
    pub(crate) queue: &'a str,
    pub(crate) attempt: u32,
    pub(crate) correlation_id: Option<&'a str>,
}

impl<'a> TaskFields<'a> {
    pub(crate) fn of(task: &'a TaskRecord) -> Self {
        Self {
            task_id: task.id,
            task_type: &task.task_type,
            user_id: &task.owner,
            queue: &task.queue,
            attempt: task.attempt,
            correlation_id: task.correlation_id.as_deref(),
        }
    }

    pub(crate) fn of_attempt(info: &'a TaskInfo) -> Self {
        Self {
            task_id: info.id,
            task_type: &info.task_type,
            user_id: &info.owner,
            queue: &info.queue,
            attempt: info.attempt,
            correlation_id: info.correlation_id.as_deref(),
        }
    }
}

/// Logs that a task was changed. Progress is no change, and comes too often.
pub(crate) fn task_changed(fields: TaskFields<'_>, event: EventKind) {
    if event == EventKind::Progress {
        return;
    }

    let TaskFields {
        task_id,
        task_type,
        user_id,
        queue,
        attempt,
        correlation_id,
    } = fields;
    let task_id = task_id.0;
    let event = event.as_str();
    tracing::debug!(%task_id, task_type, user_id, queue, attempt, correlation_id, "task {event}");
}

/// Logs that an attempt failed and left its task at `status`.
pub(crate) fn attempt_failed(fields: TaskFields<'_>, error: &str, status: Status) {
    let TaskFields {
        task_id,
        task_type,
        user_id,
        queue,
        attempt,
        correlation_id,
    } = fields;
    let task_id = task_id.0;

    match status {
        Status::Retrying => tracing::info!(
            %task_id,
            task_type,
            user_id,
            queue,
            attempt,
            correlation_id,
            error,
            "attempt failed; retrying"
        ),
        Status::Failed | Status::DeadLetter => tracing::warn!(
            %task_id,
            task_type,
            user_id,
            queue,
            attempt,
            correlation_id,
            error,
            status = status.as_str(),
            "task failed for good"
        ),
        Status::Queued
        | Status::Running
        | Status::Waiting
        | Status::Completed
        | Status::CompletedWithErrors
        | Status::Cancelled => {}
    }
}
