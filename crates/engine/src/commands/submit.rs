//! Submit: a task is made, and its queue's bell rings.

use std::collections::BTreeSet;

use longhaul_domain::{
    Lease, NewTask, RunAt, Status, StoreError, Task,
    contract::store::{ClaimRequest, Submitted},
    event::{EventKind, TaskEvent},
};

use crate::Engine;

impl Engine {
    /// Makes one task.
    pub async fn submit(&self, mut task: NewTask) -> Result<Submitted, StoreError> {
        self.place(std::slice::from_mut(&mut task)).await;
        let note = Note::of(&task);
        note.parent.iter().for_each(|parent| self.hot.makes_child(parent));
        let submitted = self.store.submit_task(task).await?;
        self.submitted(&note, submitted);
        self.count_submitted([(&note, submitted)]);
        self.ring_for([&note]);
        Ok(submitted)
    }

    /// Makes all of them, in order, or none.
    pub async fn submit_many(&self, mut tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError> {
        self.place(&mut tasks).await;
        let notes: Vec<Note> = tasks.iter().map(Note::of).collect();
        notes.iter().filter_map(|note| note.parent.as_ref()).for_each(|parent| self.hot.makes_child(parent));
        let submitted = self.store.submit_tasks(tasks).await?;
        for (note, made) in notes.iter().zip(&submitted) {
            self.submitted(note, *made);
        }
        self.count_submitted(notes.iter().zip(submitted.iter().copied()));
        self.ring_for(&notes);
        Ok(submitted)
    }

    /// Makes one task and claims, in one commit. The bell rings unless the task itself was claimed.
    pub async fn submit_and_claim(
        &self,
        mut task: NewTask,
        request: &ClaimRequest,
    ) -> Result<(Submitted, Vec<Task>), StoreError> {
        self.place(std::slice::from_mut(&mut task)).await;
        let note = Note::of(&task);
        let (submitted, claimed) = self.store.submit_and_claim(task, request).await?;
        self.submitted(&note, submitted);
        self.count_submitted([(&note, submitted)]);
        if !claimed.iter().any(|task| task.id == submitted.task_id) {
            self.ring_for([&note]);
        }
        Ok((submitted, claimed))
    }

    fn submitted(&self, note: &Note, submitted: Submitted) {
        if submitted.repeated {
            return;
        }
        self.publish(TaskEvent {
            task_id: submitted.task_id,
            owner: note.owner.clone(),
            task_type: note.task_type.clone(),
            event: EventKind::Submitted,
            status: Status::Queued,
            attempt: 0,
            version: 1,
            sequence: 0,
            progress: None,
            error: None,
            correlation_id: note.correlation_id.clone(),
        });
    }

    /// Counts what is new, those of one type that follow each other at once.
    fn count_submitted<'a>(&self, made: impl IntoIterator<Item = (&'a Note, Submitted)>) {
        let (mut of_type, mut tasks, mut children) = ("", 0, 0);
        for (note, _) in made.into_iter().filter(|(_, submitted)| !submitted.repeated) {
            if note.task_type != of_type {
                self.metrics.submitted(of_type, tasks, children);
                (of_type, tasks, children) = (&note.task_type, 0, 0);
            }
            tasks += 1;
            children += u64::from(note.parent.is_some());
        }
        self.metrics.submitted(of_type, tasks, children);
    }

    fn ring_for<'a>(&self, notes: impl IntoIterator<Item = &'a Note>) {
        let queues: BTreeSet<&str> =
            notes.into_iter().filter(|note| note.is_due).map(|note| note.queue.as_str()).collect();
        for queue in queues {
            self.doorbell.ring(queue);
        }
    }
}

/// What is told of a task once the store has it.
struct Note {
    owner: String,
    task_type: String,
    queue: String,
    is_due: bool,
    correlation_id: Option<String>,
    parent: Option<Lease>,
}

impl Note {
    fn of(task: &NewTask) -> Self {
        Self {
            owner: task.owner.clone(),
            task_type: task.task_type.clone(),
            queue: task.queue.clone(),
            correlation_id: task.correlation_id.clone(),
            parent: task.parent,
            // A moment that may have passed counts as due: a bell too many costs one look.
            is_due: !matches!(task.run_at, RunAt::AfterMs(ms) if ms > 0),
        }
    }
}
