//! Publishing what happened to a task to live listeners.

use std::collections::{BTreeSet, HashSet, VecDeque};

use longhaul_domain::{
    Status, TaskId, TaskRecord,
    contract::store::{Access, Moved},
    event::{EventKind, TaskEvent},
};

use crate::{
    Engine,
    log::{self, TaskFields},
};

/// Ends that are remembered, so that an end that is published twice is counted once.
const REMEMBERED_ENDS: usize = 1_000;

/// The last ends that were counted, each by its task and the version that it left.
#[derive(Debug, Default)]
pub(crate) struct RecentEnds {
    all: HashSet<(TaskId, u64)>,
    oldest_first: VecDeque<(TaskId, u64)>,
}

impl RecentEnds {
    /// Adds an end. Returns whether it is new.
    fn add(&mut self, end: (TaskId, u64)) -> bool {
        let is_new = self.all.insert(end);
        if is_new {
            self.oldest_first.push_back(end);
        }

        if self.oldest_first.len() > REMEMBERED_ENDS
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.all.remove(&oldest);
        }

        is_new
    }
}

impl Engine {
    /// Publishes what happened to `task`, whose record is as the store has it. An end is published
    /// once. Returns whether this process had not published it before.
    pub fn publish_event(&self, task: &TaskRecord, event: EventKind) -> bool {
        if task.status.is_ended() && !self.count_end(task) {
            return false;
        }

        log::task_changed(TaskFields::of(task), event);
        if self.count_event(event, task.id, &task.owner) {
            self.bus.publish(TaskEvent::of(task, event));
        }

        true
    }

    /// Counts an event. Returns whether it has listeners; without any it need not be built.
    pub(crate) fn count_event(&self, event: EventKind, id: TaskId, owner: &str) -> bool {
        self.metrics.events.published(event);
        self.bus.has_listeners(id, owner)
    }

    /// Counts the end of a task. Returns whether it is new to this process.
    fn count_end(&self, task: &TaskRecord) -> bool {
        let is_new = self.recent_ends.lock().add((task.id, task.version));
        if is_new {
            self.metrics.ended(&task.task_type, task.status, 1);
        }

        is_new
    }

    /// Publishes what happened to tasks that the store has moved, with hints for those that can be
    /// claimed now.
    pub(crate) fn publish_moves(&self, moved: &[Moved]) {
        for Moved { task, .. } in moved {
            self.publish_event(task, EventKind::of_status(task.status));
            if task.status.is_claimable() {
                self.notifier.notify(&task.queue);
                self.publish_hint_of(task);
            }
        }
    }

    /// Reads a task and publishes its event. A failed read is logged, because an event is never
    /// the only copy of anything. Returns the task.
    pub(crate) async fn publish_by_id(&self, id: TaskId, event: EventKind) -> Option<TaskRecord> {
        match self.store.get_task(&Access::All, id).await {
            Ok(task) => {
                self.publish_event(&task, event);
                Some(task)
            }
            Err(error) => {
                tracing::debug!(
                    %error,
                    task_id = %id.0,
                    "reading a changed task failed; no event is published"
                );
                None
            }
        }
    }

    /// Publishes what a child's end has done to its parent: ended it, or queued it for its finish
    /// step. The end of a parent may do the same to its own parent.
    pub(crate) async fn publish_parents(&self, mut parents: BTreeSet<TaskId>) {
        while let Some(id) = parents.pop_first() {
            let parent = match self.store.get_task(&Access::All, id).await {
                Ok(parent) => parent,
                Err(error) => {
                    tracing::debug!(
                        %error,
                        task_id = %id.0,
                        "reading a parent failed; no event is published"
                    );
                    continue;
                }
            };

            match parent.status {
                Status::Queued => {
                    self.publish_event(&parent, EventKind::Requeued);
                    self.notifier.notify(&parent.queue);
                    self.publish_hint_of(&parent);
                }
                Status::Completed | Status::CompletedWithErrors | Status::Failed => {
                    if self.publish_event(&parent, EventKind::of_status(parent.status)) {
                        parents.extend(parent.parent_id);
                    }
                }
                Status::Running
                | Status::Retrying
                | Status::Waiting
                | Status::Cancelled
                | Status::DeadLetter => {}
            }
        }
    }
}
