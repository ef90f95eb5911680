//! Submit: a task is made, and its queue's bell rings.

use std::collections::BTreeSet;

use longhaul_domain::{
    Lease, NewTask, RunAt, Status, StoreError, Task, Timestamp,
    contract::{
        broker::Bell,
        store::{ClaimRequest, Submitted},
    },
    event::{EventKind, TaskEvent},
};

use crate::{Engine, bells::made_at};

impl Engine {
    /// Makes one task.
    pub async fn submit(&self, mut task: NewTask) -> Result<Submitted, StoreError> {
        self.place(std::slice::from_mut(&mut task)).await;
        let note = Note::of(&task);
        note.parent.iter().for_each(|parent| self.hot.makes_child(parent));
        let submitted = self.store.submit_task(task).await?;
        self.submitted(&note, submitted);
        self.count_submitted([(&note, submitted)]);
        self.ring_for([(&note, submitted)]);
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
        self.ring_for(notes.iter().zip(submitted.iter().copied()));
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
            self.ring_for([(&note, submitted)]);
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

    fn ring_for<'a>(&self, made: impl IntoIterator<Item = (&'a Note, Submitted)>) {
        let (mut queues, mut due) = (BTreeSet::new(), Vec::new());
        for (note, submitted) in made {
            if note.delay_ms == 0 {
                queues.insert(note.queue.as_str());
            }
            if self.direct_ring.is_none() || submitted.repeated {
                continue;
            }
            let until = note.due_at.map(|moment| self.store_time.until(moment).as_millis());
            match until.map_or(note.delay_ms, |ms| u64::try_from(ms).unwrap_or(u64::MAX)) {
                0 => due.push(note.bell(submitted)),
                delay_ms => self.ring_soon(note.bell(submitted), delay_ms),
            }
        }
        for queue in queues {
            self.doorbell.ring(queue);
        }
        if !due.is_empty() {
            self.ring_now(due);
        }
    }
}

/// What is told of a task once the store has it.
struct Note {
    owner: String,
    task_type: String,
    queue: String,
    priority: u8,
    delay_ms: u64,
    due_at: Option<Timestamp>,
    trace_context: Option<String>,
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
            priority: task.priority,
            trace_context: task.trace_context.clone(),
            // A moment that may have passed counts as due: a bell too many costs one look.
            delay_ms: match task.run_at {
                RunAt::AfterMs(ms) => ms,
                RunAt::Now | RunAt::At(_) => 0,
            },
            due_at: match task.run_at {
                RunAt::At(moment) => Some(moment),
                RunAt::Now | RunAt::AfterMs(_) => None,
            },
        }
    }

    fn bell(&self, submitted: Submitted) -> Bell {
        let submitted_at = made_at(submitted.task_id);
        Bell {
            task_id: submitted.task_id,
            owner: self.owner.clone(),
            task_type: self.task_type.clone(),
            queue: self.queue.clone(),
            priority: self.priority,
            retry_count: 0,
            submitted_at,
            due_at: self.due_at.unwrap_or_else(|| submitted_at.plus_ms(self.delay_ms)),
            correlation_id: self.correlation_id.clone(),
            trace_context: self.trace_context.clone(),
        }
    }
}
