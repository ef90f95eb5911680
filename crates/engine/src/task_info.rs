//! What is told of a task beside what becomes of it. It is made once for an attempt, and shared by its hooks and its report.

use longhaul_domain::{Task, TaskId};

/// What hooks are told of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskInfo {
    /// Its id.
    pub id: TaskId,
    /// Whose it is.
    pub owner: String,
    /// The name of its type.
    pub task_type: String,
    /// The queue that it is in.
    pub queue: String,
    /// The number of its attempt, 0 before the first.
    pub attempt: u32,
    /// The task that submitted it, if one did.
    pub parent_id: Option<TaskId>,
    /// What ties it to a request of the submitter's.
    pub correlation_id: Option<String>,
}

impl TaskInfo {
    /// What the task's record says.
    pub fn of(task: &Task) -> Self {
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
