use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_domain::{
    Idempotency, Json, LeaseToken, TaskId,
    contract::{
        EventBus, Notifier,
        event_bus::{EventStream, Subscription},
        notifier::HintedTask,
    },
    event::OutboxPolicy,
};
use longhaul_testkit::{clock::TestClock, names::queue_name, reference::MemoryStore};

use super::*;
use crate::EngineBuilder;

/// A notifier that lets every other submit notify within its commit, and records the others.
#[derive(Debug, Default)]
struct CountingNotifier {
    asked: Mutex<u32>,
    notified: Mutex<Vec<String>>,
    in_commit: Mutex<u32>,
}

#[async_trait]
impl Notifier for CountingNotifier {
    fn notify(&self, queue: &str) {
        self.notified.lock().unwrap().push(queue.to_owned());
    }

    fn take_turn(&self) -> bool {
        let mut asked = self.asked.lock().unwrap();
        *asked += 1;
        *asked % 2 == 1
    }

    fn notified_in_commit(&self) {
        *self.in_commit.lock().unwrap() += 1;
    }

    async fn notified(&self) -> Vec<HintedTask> {
        Vec::new()
    }
}

#[derive(Debug)]
struct NoListeners;

impl EventBus for NoListeners {
    fn publish(&self, _event: TaskEvent) {
        unreachable!("no listener subscribes")
    }

    fn has_listeners(&self, _task_id: TaskId, _owner: &str) -> bool {
        false
    }

    fn subscribe(&self, _subscription: Subscription) -> Box<dyn EventStream> {
        unreachable!("no listener subscribes")
    }
}

#[tokio::test]
async fn a_submit_that_notifies_within_its_commit_does_not_notify_again() {
    let notifier = Arc::new(CountingNotifier::default());
    let store = Arc::new(MemoryStore::new(TestClock::new(), OutboxPolicy::default()));
    let engine =
        EngineBuilder::new(store, Arc::new(NoListeners), Arc::clone(&notifier) as _).build();
    let task = |queue| {
        NewTask::new(
            "ann",
            "t",
            queue_name(queue),
            Json::trusted("null".to_owned()),
        )
    };
    for queue in ["first", "second", "third"] {
        engine.submit(task(queue)).await.unwrap();
    }

    assert_eq!(
        (
            &**notifier.notified.lock().unwrap(),
            *notifier.in_commit.lock().unwrap()
        ),
        (&["second".to_owned()][..], 2)
    );

    let later = NewTask {
        run_at: RunAt::AfterMs(1_000),
        ..task("later")
    };
    engine.submit(later).await.unwrap();
    assert_eq!(
        *notifier.asked.lock().unwrap(),
        3,
        "a task that is due later needs no notification"
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
        *notifier.notified.lock().unwrap(),
        ["second", "fourth", "fourth"],
        "a repeated submit notifies"
    );
}

/// A bus that records what is published.
#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<TaskEvent>>);

impl EventBus for Recorder {
    fn publish(&self, event: TaskEvent) {
        self.0.lock().unwrap().push(event);
    }

    fn has_listeners(&self, _task_id: TaskId, _owner: &str) -> bool {
        true
    }

    fn subscribe(&self, _subscription: Subscription) -> Box<dyn EventStream> {
        unreachable!("this test reads what was published")
    }
}

#[tokio::test]
async fn each_task_of_a_batch_gets_its_own_event() {
    let notifier = Arc::new(CountingNotifier::default());
    let recorder = Arc::new(Recorder::default());
    let store = Arc::new(MemoryStore::new(TestClock::new(), OutboxPolicy::default()));
    let engine = EngineBuilder::new(
        store,
        Arc::clone(&recorder) as _,
        Arc::clone(&notifier) as _,
    )
    .build();
    let task = |owner, kind, queue| {
        NewTask::new(
            owner,
            kind,
            queue_name(queue),
            Json::trusted("null".to_owned()),
        )
    };
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
    let events = recorder.0.lock().unwrap();
    let ids: Vec<TaskId> = events.iter().map(|event| event.task_id).collect();
    assert_eq!(
        ids,
        made.iter().map(|made| made.task_id).collect::<Vec<_>>()
    );
    let published: Vec<_> = events
        .iter()
        .map(|event| {
            (
                event.owner.clone(),
                event.task_type.clone(),
                event.correlation_id.clone(),
            )
        })
        .collect();
    assert_eq!(published, wanted);
    assert_eq!(
        *notifier.notified.lock().unwrap(),
        ["p", "q", "r"],
        "each queue is notified once"
    );
}

#[test]
fn tasks_that_differ_in_what_is_published_share_no_note() {
    let task = NewTask::new("ann", "t", queue_name("q"), Json::trusted("null"));
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
            queue: queue_name("p"),
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
async fn a_hint_published_ahead_counts_for_as_long_as_its_task_is_looked_up() {
    let task = NewTask::new(
        "ann",
        "t",
        queue_name("q"),
        Json::trusted("null".to_owned()),
    );
    let mut note = Note::of(&task);
    assert!(!note.has_live_hint());
    note.published_at = Some(Instant::now());
    assert!(note.has_live_hint());
    tokio::time::advance(Duration::from_millis(bounds::AHEAD_LOOKUPS.into())).await;
    assert!(
        !note.has_live_hint(),
        "the commit took longer, so the hint is published again"
    );
}
