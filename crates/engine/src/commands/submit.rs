//! Submit: makes tasks, publishes their events, and wakes the nodes that may claim them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use longhaul_domain::{
    Lease, NewTask, QueueName, RunAt, StoreError, TaskId, TaskRecord, Timestamp, bounds,
    contract::{
        broker::Hint,
        store::{ClaimRequest, Submitted},
    },
    event::{EventKind, TaskEvent},
    time::millis,
};
use tokio::time::Instant;

use crate::{
    Engine,
    hints::submitted_at,
    log::{self, TaskFields},
};

impl Engine {
    /// Makes one task.
    pub async fn submit(&self, mut task: NewTask) -> Result<Submitted, StoreError> {
        self.order_fairly(std::slice::from_mut(&mut task)).await;
        let mut note = Note::of(&task);
        if let Some(parent) = &note.parent {
            self.live.makes_child(parent);
        }

        note.published_at = self.publish_ahead(&mut task, &note);
        note.notifies = note.delay_ms == 0 && self.notifier.take_turn();
        task.notifies = note.notifies;
        let submitted = self.store.submit_task(task).await?;

        self.publish_submitted(&note, submitted);
        self.count_submitted([(&note, submitted)]);
        self.wake_for([(&note, submitted)]);
        Ok(submitted)
    }

    /// Makes all of them, in order, or none.
    pub async fn submit_many(&self, mut tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError> {
        self.order_fairly(&mut tasks).await;
        let mut notes = Vec::new();
        for alike in tasks.chunk_by(Note::is_shared) {
            let note = Note::of(&alike[0]);
            if let Some(parent) = &note.parent {
                self.live.makes_child(parent);
            }
            notes.push((note, alike.len()));
        }

        let submitted = self.store.submit_tasks(tasks).await?;

        let note_of_each = notes
            .iter()
            .flat_map(|(note, count)| std::iter::repeat_n(note, *count));
        let made: Vec<(&Note, Submitted)> = note_of_each.zip(submitted.iter().copied()).collect();
        for (note, submitted) in &made {
            self.publish_submitted(note, *submitted);
        }
        self.count_submitted(made.iter().copied());
        self.wake_for(made);
        Ok(submitted)
    }

    /// Makes one task and claims tasks, in one commit. Nodes are woken unless the task itself was
    /// claimed.
    pub async fn submit_and_claim(
        &self,
        mut task: NewTask,
        request: &ClaimRequest,
    ) -> Result<(Submitted, Vec<TaskRecord>), StoreError> {
        self.order_fairly(std::slice::from_mut(&mut task)).await;
        let note = Note::of(&task);
        let (submitted, claimed) = self.store.submit_and_claim(task, request).await?;

        self.publish_submitted(&note, submitted);
        self.count_submitted([(&note, submitted)]);
        let is_claimed = claimed.iter().any(|task| task.id == submitted.task_id);
        if !is_claimed {
            self.wake_for([(&note, submitted)]);
        }

        Ok((submitted, claimed))
    }

    fn publish_submitted(&self, note: &Note, submitted: Submitted) {
        if submitted.repeated {
            return;
        }

        let id = submitted.task_id;
        log::task_changed(note.log_fields(id), EventKind::Submitted);
        if !self.count_event(EventKind::Submitted, id, &note.owner) {
            return;
        }

        self.bus.publish(TaskEvent::submitted(
            id,
            &note.owner,
            &note.task_type,
            note.correlation_id.as_deref(),
        ));
    }

    /// Counts new tasks, consecutive ones of one type together.
    fn count_submitted<'a>(&self, made: impl IntoIterator<Item = (&'a Note, Submitted)>) {
        let mut task_type = "";
        let mut tasks = 0;
        let mut children = 0;

        for (note, submitted) in made {
            if submitted.repeated {
                continue;
            }

            if *note.task_type != *task_type {
                self.metrics.submitted(task_type, tasks, children);
                task_type = &note.task_type;
                tasks = 0;
                children = 0;
            }
            tasks += 1;
            children += u64::from(note.parent.is_some());
        }

        self.metrics.submitted(task_type, tasks, children);
    }

    /// Notifies queues with new due tasks and publishes hints for the tasks.
    fn wake_for<'a>(&self, made: impl IntoIterator<Item = (&'a Note, Submitted)>) {
        let mut queues = BTreeSet::new();
        let mut due = Vec::new();
        for (note, submitted) in made {
            // A repeated task was made by an earlier commit, whose notification may be lost.
            if note.notifies && !submitted.repeated {
                self.notifier.notified_in_commit();
            } else if note.delay_ms == 0 {
                queues.insert(&note.queue);
            }

            if self.direct_dispatch.is_none() || submitted.repeated || note.has_live_hint() {
                continue;
            }
            match self.delay_ms(note) {
                0 => due.push(note.hint(submitted)),
                delay_ms => self.publish_hint_if_soon(note.hint(submitted), delay_ms),
            }
        }

        for queue in queues {
            self.notifier.notify(queue);
        }
        if !due.is_empty() {
            self.publish_hints(due);
        }
    }

    /// How long until a task is due.
    fn delay_ms(&self, note: &Note) -> u64 {
        match note.due_at {
            Some(due_at) => millis(self.store_time.until(due_at)),
            None => note.delay_ms,
        }
    }

    /// Publishes the hint of a task before its commit, if no other hint is under way, so that both
    /// happen at the same time. Where the hint comes too early, its consumer looks the task up
    /// again, [`bounds::AHEAD_LOOKUPS`] times. Where the commit takes longer than that, the hint is
    /// published again. Returns when it was published.
    fn publish_ahead(&self, task: &mut NewTask, note: &Note) -> Option<Instant> {
        let dispatch = self.direct_dispatch.as_ref()?;
        let may_not_be_made = task.idempotency.is_some() || task.parent.is_some();
        if self.delay_ms(note) > 0 || may_not_be_made {
            return None;
        }

        let now = Instant::now();
        let hint = || {
            let task_id = *task.id.get_or_insert_with(|| self.store.next_id());
            let submitted = Submitted {
                task_id,
                repeated: false,
            };
            Hint {
                lookups: bounds::AHEAD_LOOKUPS,
                ..note.hint(submitted)
            }
        };

        dispatch.publish_alone(&note.queue, hint).then_some(now)
    }
}

/// What is published of a task after its commit. Tasks of a batch that agree in it share one.
struct Note {
    owner: Arc<str>,
    task_type: Arc<str>,
    queue: QueueName,
    priority: u8,
    delay_ms: u64,
    due_at: Option<Timestamp>,
    trace_context: Option<String>,
    correlation_id: Option<String>,
    parent: Option<Lease>,
    /// When its hint was published, if that was before its commit.
    published_at: Option<Instant>,
    /// Whether its commit notifies, if it makes a task.
    notifies: bool,
}

impl Note {
    fn log_fields(&self, task_id: TaskId) -> TaskFields<'_> {
        TaskFields {
            task_id,
            task_type: &self.task_type,
            user_id: &self.owner,
            queue: &self.queue,
            attempt: 0,
            correlation_id: self.correlation_id.as_deref(),
        }
    }

    /// Whether the hint that was published before the commit still finds the task.
    fn has_live_hint(&self) -> bool {
        let looked_up_for = Duration::from_millis(bounds::AHEAD_LOOKUPS.into());
        self.published_at
            .is_some_and(|at| at.elapsed() < looked_up_for)
    }

    /// Whether both tasks have the same note.
    fn is_shared(one: &NewTask, other: &NewTask) -> bool {
        // Every field is named here, so that a new one is not forgotten.
        let NewTask {
            owner,
            task_type,
            queue,
            priority,
            run_at,
            correlation_id,
            trace_context,
            parent,
            id: _,
            tier: _,
            task_key: _,
            max_attempts: _,
            timeout_ms: _,
            deadline_at: _,
            finish_step: _,
            retry: _,
            parameters: _,
            memo: _,
            idempotency: _,
            notifies: _,
        } = one;

        (owner, task_type, queue) == (&other.owner, &other.task_type, &other.queue)
            && (priority, run_at, parent) == (&other.priority, &other.run_at, &other.parent)
            && (correlation_id, trace_context) == (&other.correlation_id, &other.trace_context)
    }

    fn of(task: &NewTask) -> Self {
        // A moment that may have passed counts as due: a hint too many costs one lookup.
        let (delay_ms, due_at) = match task.run_at {
            RunAt::Now => (0, None),
            RunAt::AfterMs(ms) => (ms, None),
            RunAt::At(moment) => (0, Some(moment)),
        };

        Self {
            owner: task.owner.clone(),
            task_type: task.task_type.clone(),
            queue: task.queue.clone(),
            priority: task.priority,
            delay_ms,
            due_at,
            trace_context: task.trace_context.clone(),
            correlation_id: task.correlation_id.clone(),
            parent: task.parent,
            published_at: None,
            notifies: false,
        }
    }

    fn hint(&self, submitted: Submitted) -> Hint {
        let submitted_at = submitted_at(submitted.task_id);
        Hint {
            task_id: submitted.task_id,
            owner: self.owner.to_string(),
            task_type: self.task_type.to_string(),
            queue: self.queue.clone(),
            priority: self.priority,
            retry_count: 0,
            submitted_at,
            due_at: self
                .due_at
                .unwrap_or_else(|| submitted_at.plus_ms(self.delay_ms)),
            lookups: 0,
            correlation_id: self.correlation_id.clone(),
            trace_context: self.trace_context.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
