//! Submit: a task is made, and its queue's bell rings.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use longhaul_domain::{
    Lease, NewTask, RunAt, Status, StoreError, Task, Timestamp, bounds,
    contract::{
        broker::Bell,
        store::{ClaimRequest, Submitted},
    },
    event::{EventKind, TaskEvent},
};
use tokio::time::Instant;

use crate::{Engine, bells::made_at};

impl Engine {
    /// Makes one task.
    pub async fn submit(&self, mut task: NewTask) -> Result<Submitted, StoreError> {
        self.place(std::slice::from_mut(&mut task)).await;
        let mut note = Note::of(&task);
        note.parent
            .iter()
            .for_each(|parent| self.hot.makes_child(parent));
        note.rung_at = self.ring_ahead(&mut task, &note);
        note.rings = note.delay_ms == 0 && self.doorbell.take_turn();
        task.rings = note.rings;
        let submitted = self.store.submit_task(task).await?;
        self.submitted(&note, submitted);
        self.count_submitted([(&note, submitted)]);
        self.ring_for([(&note, submitted)]);
        Ok(submitted)
    }

    /// Makes all of them, in order, or none.
    pub async fn submit_many(&self, mut tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError> {
        self.place(&mut tasks).await;
        let notes: Vec<(Note, usize)> = tasks
            .chunk_by(Note::is_shared)
            .map(|alike| (Note::of(&alike[0]), alike.len()))
            .collect();
        notes
            .iter()
            .filter_map(|(note, _)| note.parent.as_ref())
            .for_each(|parent| self.hot.makes_child(parent));
        let submitted = self.store.submit_tasks(tasks).await?;
        let each = || {
            notes
                .iter()
                .flat_map(|(note, count)| std::iter::repeat_n(note, *count))
        };
        let made = || each().zip(submitted.iter().copied());
        made().for_each(|(note, made)| self.submitted(note, made));
        self.count_submitted(made());
        self.ring_for(made());
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
        if submitted.repeated
            || !self.note_news(EventKind::Submitted, submitted.task_id, &note.owner)
        {
            return;
        }
        self.bus.publish(TaskEvent {
            task_id: submitted.task_id,
            owner: note.owner.to_string(),
            task_type: note.task_type.to_string(),
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
        for (note, _) in made
            .into_iter()
            .filter(|(_, submitted)| !submitted.repeated)
        {
            if *note.task_type != *of_type {
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
            // A repeat was made by an earlier commit, of which nobody may have heard.
            match note.rings && !submitted.repeated {
                true => self.doorbell.rung(),
                false if note.delay_ms == 0 => drop(queues.insert(&*note.queue)),
                false => {}
            }
            if self.direct_ring.is_none() || submitted.repeated || note.is_rung() {
                continue;
            }
            match self.delay_ms(note) {
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

    /// How long until a task is due.
    fn delay_ms(&self, note: &Note) -> u64 {
        let until = note
            .due_at
            .map(|moment| self.store_time.until(moment).as_millis());
        until.map_or(note.delay_ms, |ms| u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// Rings for a task while it is being committed, if nothing else rings: the bell is on its way meanwhile. Should it come
    /// too early, whoever hears it looks again, [`bounds::AHEAD_LOOKS`] times; should the commit take longer than that, it is
    /// rung for again. Answers with when it was rung.
    fn ring_ahead(&self, task: &mut NewTask, note: &Note) -> Option<Instant> {
        let ring = self.direct_ring.as_ref()?;
        if self.delay_ms(note) > 0 || task.idempotency.is_some() || task.parent.is_some() {
            return None;
        }
        let now = Instant::now();
        let bell = || {
            let task_id = *task.id.get_or_insert_with(|| self.store.next_id());
            Bell {
                looks: bounds::AHEAD_LOOKS,
                ..note.bell(Submitted {
                    task_id,
                    repeated: false,
                })
            }
        };
        ring.ring_alone(&note.queue, bell).then_some(now)
    }
}

/// What is told of a task once the store has it.
struct Note {
    owner: Arc<str>,
    task_type: Arc<str>,
    queue: Arc<str>,
    priority: u8,
    delay_ms: u64,
    due_at: Option<Timestamp>,
    trace_context: Option<String>,
    correlation_id: Option<String>,
    parent: Option<Lease>,
    /// When it was rung for, if before its commit.
    rung_at: Option<Instant>,
    /// Whether its commit rings the doorbell, if it makes a task.
    rings: bool,
}

impl Note {
    /// Whether its bell was rung so shortly before that whoever hears it finds the task.
    fn is_rung(&self) -> bool {
        self.rung_at
            .is_some_and(|at| at.elapsed() < Duration::from_millis(bounds::AHEAD_LOOKS.into()))
    }

    /// Whether the same is told of both.
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
            rings: _,
        } = one;
        (owner, task_type, queue) == (&other.owner, &other.task_type, &other.queue)
            && (priority, run_at, parent) == (&other.priority, &other.run_at, &other.parent)
            && (correlation_id, trace_context) == (&other.correlation_id, &other.trace_context)
    }

    fn of(task: &NewTask) -> Self {
        Self {
            owner: task.owner.clone(),
            task_type: task.task_type.clone(),
            queue: task.queue.clone(),
            correlation_id: task.correlation_id.clone(),
            parent: task.parent,
            priority: task.priority,
            trace_context: task.trace_context.clone(),
            rung_at: None,
            rings: false,
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
            owner: self.owner.to_string(),
            task_type: self.task_type.to_string(),
            queue: self.queue.to_string(),
            priority: self.priority,
            retry_count: 0,
            submitted_at,
            due_at: self
                .due_at
                .unwrap_or_else(|| submitted_at.plus_ms(self.delay_ms)),
            looks: 0,
            correlation_id: self.correlation_id.clone(),
            trace_context: self.trace_context.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;
    use longhaul_domain::{
        Idempotency, Json, LeaseToken, TaskId,
        contract::{
            Doorbell, EventBus,
            doorbell::RungFor,
            event_bus::{EventStream, Subscription},
        },
        event::OutboxPolicy,
    };
    use longhaul_testkit::{clock::TestClock, reference::MemoryStore};

    use super::*;
    use crate::Parts;

    /// A bell that lets every other submit ring by itself, and remembers who rang otherwise.
    #[derive(Debug, Default)]
    struct Bells {
        asked: Mutex<u32>,
        rung: Mutex<Vec<String>>,
        within: Mutex<u32>,
    }

    #[async_trait]
    impl Doorbell for Bells {
        fn ring(&self, queue: &str) {
            self.rung.lock().unwrap().push(queue.to_owned());
        }

        fn take_turn(&self) -> bool {
            let mut asked = self.asked.lock().unwrap();
            *asked += 1;
            *asked % 2 == 1
        }

        fn rung(&self) {
            *self.within.lock().unwrap() += 1;
        }

        async fn heard(&self) -> Vec<RungFor> {
            Vec::new()
        }
    }

    #[derive(Debug)]
    struct Deaf;

    impl EventBus for Deaf {
        fn publish(&self, _event: TaskEvent) {
            unreachable!("nobody listens")
        }

        fn is_heard(&self, _task_id: TaskId, _owner: &str) -> bool {
            false
        }

        fn subscribe(&self, _subscription: Subscription) -> Box<dyn EventStream> {
            unreachable!("nobody listens")
        }
    }

    #[tokio::test]
    async fn a_submit_that_rings_within_its_commit_is_not_rung_for_again() {
        let bells = Arc::new(Bells::default());
        let store = Arc::new(MemoryStore::new(TestClock::new(), OutboxPolicy::default()));
        let engine = Parts::new(store, Arc::new(Deaf), Arc::clone(&bells) as _).build();
        let task = |queue| NewTask::new("ann", "t", queue, Json::trusted("null".to_owned()));
        for queue in ["first", "second", "third"] {
            engine.submit(task(queue)).await.unwrap();
        }
        assert_eq!(
            (&**bells.rung.lock().unwrap(), *bells.within.lock().unwrap()),
            (&["second".to_owned()][..], 2)
        );
        let later = NewTask {
            run_at: RunAt::AfterMs(1_000),
            ..task("later")
        };
        engine.submit(later).await.unwrap();
        assert_eq!(
            *bells.asked.lock().unwrap(),
            3,
            "what is due later has nothing to ring for"
        );
        let keyed = Idempotency {
            key: "k".to_owned(),
            digest: [7; 32],
            ttl_ms: 60_000,
        };
        for queue in ["fourth", "fourth"] {
            engine
                .submit(NewTask {
                    idempotency: Some(keyed.clone()),
                    ..task(queue)
                })
                .await
                .unwrap();
        }
        assert_eq!(
            *bells.rung.lock().unwrap(),
            ["second", "fourth", "fourth"],
            "a repeat is rung for"
        );
    }

    /// A bus that everybody listens to.
    #[derive(Debug, Default)]
    struct Heard(Mutex<Vec<TaskEvent>>);

    impl EventBus for Heard {
        fn publish(&self, event: TaskEvent) {
            self.0.lock().unwrap().push(event);
        }

        fn is_heard(&self, _task_id: TaskId, _owner: &str) -> bool {
            true
        }

        fn subscribe(&self, _subscription: Subscription) -> Box<dyn EventStream> {
            unreachable!("this test looks at what was published")
        }
    }

    #[tokio::test]
    async fn of_each_task_of_a_batch_its_own_is_told() {
        let (bells, heard) = (Arc::new(Bells::default()), Arc::new(Heard::default()));
        let store = Arc::new(MemoryStore::new(TestClock::new(), OutboxPolicy::default()));
        let engine = Parts::new(store, Arc::clone(&heard) as _, Arc::clone(&bells) as _).build();
        let task =
            |owner, kind, queue| NewTask::new(owner, kind, queue, Json::trusted("null".to_owned()));
        let tied = NewTask {
            correlation_id: Some("c".to_owned()),
            ..task("bob", "u", "q")
        };
        let later = NewTask {
            run_at: RunAt::AfterMs(1_000),
            ..task("bob", "u", "r")
        };
        let tasks = vec![
            task("ann", "t", "p"),
            task("ann", "t", "p"),
            task("bob", "t", "p"),
            task("bob", "u", "p"),
        ];
        let tasks = [
            tasks,
            vec![task("bob", "u", "q"), tied, later, task("bob", "u", "r")],
        ]
        .concat();
        let wanted: Vec<_> = tasks
            .iter()
            .map(|task| {
                (
                    task.owner.to_string(),
                    task.task_type.to_string(),
                    task.correlation_id.clone(),
                )
            })
            .collect();
        let made = engine.submit_many(tasks).await.unwrap();
        let told = heard.0.lock().unwrap();
        let ids: Vec<TaskId> = told.iter().map(|event| event.task_id).collect();
        assert_eq!(
            ids,
            made.iter().map(|made| made.task_id).collect::<Vec<_>>()
        );
        let told: Vec<_> = told
            .iter()
            .map(|event| {
                (
                    event.owner.clone(),
                    event.task_type.clone(),
                    event.correlation_id.clone(),
                )
            })
            .collect();
        assert_eq!(told, wanted);
        assert_eq!(
            *bells.rung.lock().unwrap(),
            ["p", "q", "r"],
            "each queue once"
        );
    }

    #[test]
    fn tasks_of_which_anything_else_is_told_share_no_note() {
        let task = NewTask::new("ann", "t", "q", Json::trusted("null"));
        let lease = Lease {
            task_id: TaskId(uuid::Uuid::nil()),
            attempt: 1,
            token: LeaseToken(uuid::Uuid::nil()),
        };
        let others = [
            NewTask {
                owner: "bob".into(),
                ..task.clone()
            },
            NewTask {
                task_type: "u".into(),
                ..task.clone()
            },
            NewTask {
                queue: "p".into(),
                ..task.clone()
            },
            NewTask {
                priority: 2,
                ..task.clone()
            },
            NewTask {
                run_at: RunAt::AfterMs(1),
                ..task.clone()
            },
            NewTask {
                correlation_id: Some("c".to_owned()),
                ..task.clone()
            },
            NewTask {
                trace_context: Some("c".to_owned()),
                ..task.clone()
            },
            NewTask {
                parent: Some(lease),
                ..task.clone()
            },
        ];
        assert!(others.iter().all(|other| !Note::is_shared(&task, other)));
        let alike = NewTask {
            parameters: Json::trusted("1"),
            task_key: Some("k".to_owned()),
            ..task.clone()
        };
        assert!(Note::is_shared(&task, &alike));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bell_is_as_good_as_heard_for_as_long_as_it_is_looked_for() {
        let task = NewTask::new("ann", "t", "q", Json::trusted("null".to_owned()));
        let mut note = Note::of(&task);
        assert!(!note.is_rung());
        note.rung_at = Some(Instant::now());
        assert!(note.is_rung());
        tokio::time::advance(Duration::from_millis(bounds::AHEAD_LOOKS.into())).await;
        assert!(
            !note.is_rung(),
            "the commit took longer: it is rung for again"
        );
    }
}
