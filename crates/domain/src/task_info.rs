//! The identity of a task without its state. It is made once per attempt and shared by the hooks
//! and the report of that attempt.

use crate::{ids::TaskId, names::QueueName, task::TaskRecord};

/// What hooks receive of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskInfo {
    pub id: TaskId,
    /// The owner, `userId` in the public contract.
    pub owner: String,
    /// The name of the task's type.
    pub task_type: String,
    pub queue: QueueName,
    /// The number of the attempt, 0 before the first.
    pub attempt: u32,
    /// The task that submitted it, if one did.
    pub parent_id: Option<TaskId>,
    /// The id that ties the task to a request of its submitter.
    pub correlation_id: Option<String>,
}

impl TaskInfo {
    pub fn of(task: &TaskRecord) -> Self {
        Self {
            id: task.id,
            owner: task.owner.clone(),
            task_type: task.task_type.clone(),
            queue: task.queue.clone(),
            attempt: task.attempt,
            parent_id: task.parent_id,
            correlation_id: task.correlation_id.clone(),
        }
    }
}
