//! The progress collector over the reference store in memory. The tests move the runtime's time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use longhaul_domain::{
    Json, LeaseToken, NewTask, NodeId, TaskId, TaskRecord,
    contract::{
        EventBus, Notifier, ProgressCache,
        event_bus::{EventStream, Received, Subscription},
        notifier::HintedTask,
        progress_cache::CacheError,
        store::{AttemptEnd, AttemptReport, ClaimRequest},
    },
    event::OutboxPolicy,
};
use longhaul_testkit::{
    clock::TestClock,
    names::queue_name,
    reference::{MemoryStore, NodeWatch},
};

use super::*;
use crate::EngineBuilder;

/// Records what is published, in order.
#[derive(Debug, Default)]
struct Recorder {
    events: std::sync::Mutex<Vec<TaskEvent>>,
    cached: std::sync::Mutex<Vec<(TaskId, LiveProgress)>>,
}

impl EventBus for Recorder {
    fn publish(&self, event: TaskEvent) {
        self.events.lock().unwrap().push(event);
    }

    fn subscribe(&self, _subscription: Subscription) -> Box<dyn EventStream> {
        Box::new(NoEvents)
    }
}

#[derive(Debug)]
struct NoEvents;

#[async_trait]
impl EventStream for NoEvents {
    async fn next(&mut self) -> Option<Received> {
        None
    }
}

#[async_trait]
impl Notifier for NoEvents {
    fn notify(&self, _queue: &str) {}

    async fn notified(&self) -> Vec<HintedTask> {
        std::future::pending().await
    }
}

#[async_trait]
impl ProgressCache for Recorder {
    async fn put(&self, reports: &[(TaskId, LiveProgress)]) -> Result<(), CacheError> {
        self.cached.lock().unwrap().extend_from_slice(reports);
        Ok(())
    }

    async fn get(&self, tasks: &[TaskId]) -> Result<Vec<Option<LiveProgress>>, CacheError> {
        let cached = self.cached.lock().unwrap();
        Ok(tasks
            .iter()
            .map(|id| {
                cached
                    .iter()
                    .rev()
                    .find(|(of, _)| of == id)
                    .map(|(_, report)| report.clone())
            })
            .collect())
    }

    async fn forget(&self, _tasks: &[TaskId]) -> Result<(), CacheError> {
        Ok(())
    }

    fn is_shared(&self) -> bool {
        false
    }
}

struct World {
    engine: Arc<Engine>,
    recorder: Arc<Recorder>,
    refused_writes: Arc<RefusedWrites>,
    collection: ProgressCollection,
    tag: u64,
}

/// Lets the store refuse as many writes of progress as the test says.
#[derive(Debug, Default)]
struct RefusedWrites(AtomicUsize);

#[async_trait]
impl NodeWatch for RefusedWrites {
    async fn before(&self, operation: &'static str) -> Result<(), StoreError> {
        let is_refused = operation == "save_progress"
            && self
                .0
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok();
        if is_refused {
            return Err(StoreError::Unavailable("refused by the test".to_owned()));
        }
        Ok(())
    }

    async fn after(&self, _operation: &'static str) {}
}

impl World {
    fn new() -> Self {
        let refused_writes = Arc::new(RefusedWrites::default());
        let watch: Arc<RefusedWrites> = Arc::clone(&refused_writes);
        let store =
            MemoryStore::new(TestClock::new(), OutboxPolicy::default()).with_node_watch(watch);
        let recorder = Arc::new(Recorder::default());
        let builder = EngineBuilder::new(
            Arc::new(store),
            Arc::<Recorder>::clone(&recorder),
            Arc::new(NoEvents),
        );
        let engine = builder
            .progress_cache(Some(Arc::<Recorder>::clone(&recorder)))
            .build();

        Self {
            engine,
            recorder,
            refused_writes,
            collection: ProgressCollection::default(),
            tag: 0,
        }
    }

    /// Submits and claims this many tasks.
    async fn running(&self, tasks: usize) -> Vec<TaskRecord> {
        let store = &self.engine.store;
        let new = |_| NewTask::new("u-1", "t", queue_name("q"), json(0));
        store
            .submit_tasks((0..tasks).map(new).collect())
            .await
            .unwrap();
        self.claim(tasks).await
    }

    async fn claim(&self, limit: usize) -> Vec<TaskRecord> {
        let node_id = NodeId(uuid::Uuid::nil());
        self.engine
            .store
            .register_node(node_id, "n", "h", None)
            .await
            .unwrap();
        let queues = vec![queue_name("q")];
        let task_types = vec!["t".to_owned()];
        let request = ClaimRequest {
            node_id,
            host: "h".to_owned(),
            queues,
            task_types,
            limit,
        };

        self.engine.store.claim_tasks(&request).await.unwrap()
    }

    async fn receive(&mut self, reports: impl IntoIterator<Item = ProgressReport>) {
        let tagged = reports.into_iter().map(|report| {
            self.tag += 1;
            (self.tag, report)
        });
        self.collection.unacknowledged = tagged.collect();
        self.collection.process(&self.engine).await.unwrap();
        self.collection.unacknowledged.clear();
    }

    async fn stored(&self, id: TaskId) -> TaskRecord {
        self.engine.store.get_task(&Access::All, id).await.unwrap()
    }

    fn published(&self) -> usize {
        assert_eq!(
            self.recorder.events.lock().unwrap().len(),
            self.recorder.cached.lock().unwrap().len()
        );
        self.recorder.events.lock().unwrap().len()
    }
}

fn json(number: u64) -> Json {
    Json::parse("progress", number.to_string()).unwrap()
}

fn report(lease: Lease, sequence: u64) -> ProgressReport {
    ProgressReport {
        lease,
        sequence,
        progress: json(sequence),
        is_full: false,
    }
}

fn lease(task: &TaskRecord) -> Lease {
    task.lease().unwrap()
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_reports_a_second_are_written_no_more_often_than_the_rule_allows() {
    const TASKS: usize = 500;
    const SECONDS: u64 = 16;

    let mut world = World::new();
    let tasks = world.running(TASKS).await;
    let mut sequence = 0;

    for _ in 0..SECONDS * 10 {
        // A tenth of a second: a thousand reports, two of each task, in any order.
        sequence += 2;
        let older = tasks
            .iter()
            .rev()
            .map(|task| report(lease(task), sequence - 1));
        let newer = tasks.iter().map(|task| report(lease(task), sequence));

        world.receive(newer.chain(older)).await;
        tokio::time::advance(Duration::from_millis(100)).await;
    }

    // Each batch publishes the newest report of each task.
    assert_eq!(world.published(), TASKS * SECONDS as usize * 10);
    for task in &tasks {
        let stored = world.stored(task.id).await;
        // Written at first, and after 5, 10 and 15 seconds. Each write raises the version by one.
        assert_eq!(
            stored.version - task.version,
            4,
            "{} reports of each",
            sequence
        );

        let newest: u64 = stored.progress.unwrap().read().unwrap();
        assert!(
            newest.is_multiple_of(2) && newest + 20 > sequence,
            "{newest} of {sequence}"
        );
    }

    // The last report of a silent task is written when it is due, and the task forgotten.
    tokio::time::advance(Duration::from_secs(61)).await;
    world.receive([]).await;
    assert_eq!(
        world.stored(tasks[0].id).await.progress,
        Some(json(sequence))
    );
    tokio::time::advance(Duration::from_secs(61)).await;
    world.receive([]).await;

    assert_eq!(
        format!("{:?}", world.collection.pending),
        format!("{:?}", WriteBehind::default())
    );

    assert!(
        world
            .collection
            .leases
            .unknown_of([lease(&tasks[0])].iter())
            .len()
            == 1
    );
}

#[tokio::test(start_paused = true)]
async fn a_complete_report_is_written_at_once_and_later_ones_by_the_rule() {
    let mut world = World::new();
    let task = &world.running(1).await[0];
    world.receive([report(lease(task), 1)]).await;
    world.receive([report(lease(task), 2)]).await;
    assert_eq!(world.stored(task.id).await.progress, Some(json(1)));

    for sequence in 3..100 {
        world
            .receive([ProgressReport {
                is_full: true,
                ..report(lease(task), sequence)
            }])
            .await;
    }

    let stored = world.stored(task.id).await;
    assert_eq!(
        (stored.progress, stored.version - task.version),
        (Some(json(3)), 2)
    );
}

#[tokio::test(start_paused = true)]
async fn forged_and_foreign_leases_change_nothing() {
    let mut world = World::new();
    let tasks = world.running(2).await;
    let valid = lease(&tasks[0]);

    let forged = [
        Lease {
            token: LeaseToken(uuid::Uuid::max()),
            ..valid
        },
        Lease {
            attempt: valid.attempt + 1,
            ..valid
        },
        Lease {
            attempt: 0,
            ..valid
        },
        Lease {
            token: lease(&tasks[1]).token,
            ..valid
        },
        Lease {
            task_id: TaskId(uuid::Uuid::max()),
            ..valid
        },
    ];

    for sequence in 1..5 {
        world
            .receive(forged.map(|lease| report(lease, sequence)))
            .await;
    }

    assert_eq!(
        (world.published(), world.stored(valid.task_id).await),
        (0, tasks[0].clone())
    );
    assert_eq!(
        world.collection.leases.unknown_of(forged.iter()),
        [],
        "the store is asked about each of them once"
    );

    // The valid lease is accepted beside them.
    world
        .receive(forged.iter().chain([&valid]).map(|lease| report(*lease, 9)))
        .await;
    assert_eq!(
        (
            world.published(),
            world.stored(valid.task_id).await.progress
        ),
        (1, Some(json(9)))
    );
}

#[tokio::test(start_paused = true)]
async fn reports_of_an_older_attempt_change_nothing_once_its_successor_is_known() {
    let mut world = World::new();
    let first = world.running(1).await.remove(0);
    world.receive([report(lease(&first), 1)]).await;
    let handed_back = AttemptReport {
        lease: lease(&first),
        end: AttemptEnd::HandedBack,
    };

    world
        .engine
        .store
        .finish_tasks(&[handed_back])
        .await
        .unwrap();

    let second = world.claim(1).await.remove(0);
    assert_eq!(second.id, first.id);
    world
        .receive([report(lease(&second), 1), report(lease(&first), 50)])
        .await;
    world.receive([report(lease(&first), 51)]).await;
    tokio::time::advance(Duration::from_secs(6)).await;
    world.receive([report(lease(&first), 52)]).await;
    let stored = world.stored(first.id).await;

    assert_eq!(
        (stored.progress, stored.attempt),
        (Some(json(1)), second.attempt)
    );
    assert_eq!(
        world.recorder.get(&[first.id]).await.unwrap()[0]
            .as_ref()
            .unwrap()
            .age(),
        (second.attempt, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_cancelled_task_is_rejected_at_the_next_write() {
    let mut world = World::new();
    let task = world.running(1).await.remove(0);
    world.receive([report(lease(&task), 1)]).await;
    world
        .engine
        .store
        .cancel_task(&Access::All, task.id)
        .await
        .unwrap();

    let cancelled = world.stored(task.id).await;
    tokio::time::advance(Duration::from_secs(6)).await;
    world.receive([report(lease(&task), 2)]).await;
    let published = world.published();
    world.receive([report(lease(&task), 3)]).await;
    assert_eq!(
        world.published(),
        published,
        "a rejected lease publishes nothing"
    );
    assert_eq!(world.stored(task.id).await, cancelled);
}

#[tokio::test(start_paused = true)]
async fn repeated_and_late_reports_change_nothing() {
    let mut world = World::new();
    let task = world.running(1).await.remove(0);
    for sequence in [1, 5, 5, 3, 1] {
        world.receive([report(lease(&task), sequence)]).await;
    }

    tokio::time::advance(Duration::from_secs(6)).await;
    world.receive([]).await;
    assert_eq!(world.published(), 2);
    assert_eq!(world.stored(task.id).await.progress, Some(json(5)));
}

#[tokio::test(start_paused = true)]
async fn a_report_is_acknowledged_only_after_its_refused_write_was_repeated() {
    let mut world = World::new();
    let task = world.running(1).await.remove(0);
    world.refused_writes.0.store(1, Ordering::SeqCst);
    world.collection.unacknowledged = vec![(1, report(lease(&task), 1))];
    let refused = world.collection.process(&world.engine).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))));

    // The next pass continues with the same report. When it succeeds, the report is acknowledged.
    world.collection.process(&world.engine).await.unwrap();
    assert_eq!(world.stored(task.id).await.progress, Some(json(1)));
}
