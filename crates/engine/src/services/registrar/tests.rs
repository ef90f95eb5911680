//! The registrar against the store in memory. Time is the runtime's, and moved by the tests.

use std::sync::Arc;

use longhaul_domain::{
    Json, Lease, LeaseToken, NewTask, NodeId, TaskId,
    contract::{
        Doorbell, EventBus, ProgressCache,
        doorbell::RungFor,
        event_bus::{EventStream, Heard, Subscription},
        progress_cache::CacheError,
        store::{ClaimRequest, Outcome, Report},
    },
    event::OutboxPolicy,
};
use longhaul_testkit::{clock::TestClock, reference::MemoryStore};

use super::*;
use crate::Parts;

/// Remembers what it was told, in order.
#[derive(Debug, Default)]
struct Ears {
    news: std::sync::Mutex<Vec<TaskEvent>>,
    hot: std::sync::Mutex<Vec<(TaskId, HotProgress)>>,
}

impl EventBus for Ears {
    fn publish(&self, event: TaskEvent) {
        self.news.lock().unwrap().push(event);
    }

    fn subscribe(&self, _subscription: Subscription) -> Box<dyn EventStream> {
        Box::new(Silence)
    }
}

#[derive(Debug)]
struct Silence;

#[async_trait]
impl EventStream for Silence {
    async fn next(&mut self) -> Option<Heard> {
        None
    }
}

#[async_trait]
impl Doorbell for Silence {
    fn ring(&self, _queue: &str) {}

    async fn heard(&self) -> Vec<RungFor> {
        std::future::pending().await
    }
}

#[async_trait]
impl ProgressCache for Ears {
    async fn put(&self, reports: &[(TaskId, HotProgress)]) -> Result<(), CacheError> {
        self.hot.lock().unwrap().extend_from_slice(reports);
        Ok(())
    }

    async fn get(&self, tasks: &[TaskId]) -> Result<Vec<Option<HotProgress>>, CacheError> {
        let hot = self.hot.lock().unwrap();
        Ok(tasks
            .iter()
            .map(|id| {
                hot.iter()
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

struct Scene {
    engine: Arc<Engine>,
    ears: Arc<Ears>,
    desk: RegistrarDesk,
    tag: u64,
}

impl Scene {
    fn set() -> Self {
        let store = MemoryStore::new(TestClock::new(), OutboxPolicy::default());
        let ears = Arc::new(Ears::default());
        let parts = Parts::new(
            Arc::new(store),
            Arc::<Ears>::clone(&ears),
            Arc::new(Silence),
        );
        let engine = parts
            .progress_cache(Some(Arc::<Ears>::clone(&ears)))
            .build();
        Self {
            engine,
            ears,
            desk: RegistrarDesk::default(),
            tag: 0,
        }
    }

    /// So many tasks that run, with their leases.
    async fn running(&self, tasks: usize) -> Vec<Task> {
        let store = &self.engine.store;
        let new = |_| NewTask::new("u-1", "t", "q", json(0));
        store
            .submit_tasks((0..tasks).map(new).collect())
            .await
            .unwrap();
        self.claim(tasks).await
    }

    async fn claim(&self, limit: usize) -> Vec<Task> {
        let node_id = NodeId(uuid::Uuid::nil());
        self.engine
            .store
            .register_node(node_id, "n", "h", None)
            .await
            .unwrap();
        let (queues, task_types) = (vec!["q".to_owned()], vec!["t".to_owned()]);
        let request = ClaimRequest {
            node_id,
            host: "h".to_owned(),
            queues,
            task_types,
            limit,
        };
        self.engine.store.claim_tasks(&request).await.unwrap()
    }

    async fn hears(&mut self, reports: impl IntoIterator<Item = ProgressReport>) {
        let tagged = reports.into_iter().map(|report| {
            self.tag += 1;
            (self.tag, report)
        });
        self.desk.held = tagged.collect();
        self.desk.keep(&self.engine).await.unwrap();
        self.desk.held.clear();
    }

    async fn stored(&self, id: TaskId) -> Task {
        self.engine.store.get_task(&Access::All, id).await.unwrap()
    }

    fn told(&self) -> usize {
        assert_eq!(
            self.ears.news.lock().unwrap().len(),
            self.ears.hot.lock().unwrap().len()
        );
        self.ears.news.lock().unwrap().len()
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

fn lease(task: &Task) -> Lease {
    task.lease().unwrap()
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_reports_a_second_are_written_no_oftener_than_the_rule_says() {
    const TASKS: usize = 500;
    const SECONDS: u64 = 16;
    let mut scene = Scene::set();
    let tasks = scene.running(TASKS).await;
    let mut sequence = 0;
    for _ in 0..SECONDS * 10 {
        // A tenth of a second: a thousand reports, two of each task, in any order.
        sequence += 2;
        let older = tasks
            .iter()
            .rev()
            .map(|task| report(lease(task), sequence - 1));
        let newer = tasks.iter().map(|task| report(lease(task), sequence));
        scene.hears(newer.chain(older)).await;
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    // Everyone is heard of at once, once a batch, and the newest of it counts.
    assert_eq!(scene.told(), TASKS * SECONDS as usize * 10);
    for task in &tasks {
        let stored = scene.stored(task.id).await;
        // At first, and after 5, 10 and 15 seconds. Each write raises the version by one.
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
    // What is silent is written when it is due, and then forgotten.
    tokio::time::advance(Duration::from_secs(61)).await;
    scene.hears([]).await;
    assert_eq!(
        scene.stored(tasks[0].id).await.progress,
        Some(json(sequence))
    );
    tokio::time::advance(Duration::from_secs(61)).await;
    scene.hears([]).await;
    assert_eq!(
        format!("{:?}", scene.desk.pending),
        format!("{:?}", PendingProgress::default())
    );
    assert!(scene.desk.roll.unknown_of([lease(&tasks[0])].iter()).len() == 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_report_is_written_at_once_and_those_after_it_by_the_rule() {
    let mut scene = Scene::set();
    let task = &scene.running(1).await[0];
    scene.hears([report(lease(task), 1)]).await;
    scene.hears([report(lease(task), 2)]).await;
    assert_eq!(scene.stored(task.id).await.progress, Some(json(1)));
    for sequence in 3..100 {
        scene
            .hears([ProgressReport {
                is_full: true,
                ..report(lease(task), sequence)
            }])
            .await;
    }
    let stored = scene.stored(task.id).await;
    assert_eq!(
        (stored.progress, stored.version - task.version),
        (Some(json(3)), 2)
    );
}

#[tokio::test(start_paused = true)]
async fn forged_and_foreign_leases_change_nothing() {
    let mut scene = Scene::set();
    let tasks = scene.running(2).await;
    let good = lease(&tasks[0]);
    let forged = [
        Lease {
            token: LeaseToken(uuid::Uuid::max()),
            ..good
        },
        Lease {
            attempt: good.attempt + 1,
            ..good
        },
        Lease { attempt: 0, ..good },
        Lease {
            token: lease(&tasks[1]).token,
            ..good
        },
        Lease {
            task_id: TaskId(uuid::Uuid::max()),
            ..good
        },
    ];
    for sequence in 1..5 {
        scene
            .hears(forged.map(|lease| report(lease, sequence)))
            .await;
    }
    assert_eq!(
        (scene.told(), scene.stored(good.task_id).await),
        (0, tasks[0].clone())
    );
    assert_eq!(
        scene.desk.roll.unknown_of(forged.iter()),
        [],
        "nobody is asked about them again"
    );
    // The good one is heard beside them.
    scene
        .hears(forged.iter().chain([&good]).map(|lease| report(*lease, 9)))
        .await;
    assert_eq!(
        (scene.told(), scene.stored(good.task_id).await.progress),
        (1, Some(json(9)))
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_zombie_reports_changes_nothing_once_its_successor_is_known() {
    let mut scene = Scene::set();
    let first = scene.running(1).await.remove(0);
    scene.hears([report(lease(&first), 1)]).await;
    let handed_back = Report {
        lease: lease(&first),
        outcome: Outcome::HandedBack,
    };
    scene
        .engine
        .store
        .finish_tasks(&[handed_back])
        .await
        .unwrap();
    let second = scene.claim(1).await.remove(0);
    assert_eq!(second.id, first.id);
    scene
        .hears([report(lease(&second), 1), report(lease(&first), 50)])
        .await;
    scene.hears([report(lease(&first), 51)]).await;
    tokio::time::advance(Duration::from_secs(6)).await;
    scene.hears([report(lease(&first), 52)]).await;
    let stored = scene.stored(first.id).await;
    assert_eq!(
        (stored.progress, stored.attempt),
        (Some(json(1)), second.attempt)
    );
    assert_eq!(
        scene.ears.get(&[first.id]).await.unwrap()[0]
            .as_ref()
            .unwrap()
            .age(),
        (second.attempt, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_cancelled_is_struck_off_at_the_next_write() {
    let mut scene = Scene::set();
    let task = scene.running(1).await.remove(0);
    scene.hears([report(lease(&task), 1)]).await;
    scene
        .engine
        .store
        .cancel_task(&Access::All, task.id)
        .await
        .unwrap();
    let cancelled = scene.stored(task.id).await;
    tokio::time::advance(Duration::from_secs(6)).await;
    scene.hears([report(lease(&task), 2)]).await;
    let told = scene.told();
    scene.hears([report(lease(&task), 3)]).await;
    assert_eq!(scene.told(), told, "nobody is told of it any more");
    assert_eq!(scene.stored(task.id).await, cancelled);
}

#[tokio::test(start_paused = true)]
async fn reports_that_come_again_or_late_change_nothing() {
    let mut scene = Scene::set();
    let task = scene.running(1).await.remove(0);
    for sequence in [1, 5, 5, 3, 1] {
        scene.hears([report(lease(&task), sequence)]).await;
    }
    tokio::time::advance(Duration::from_secs(6)).await;
    scene.hears([]).await;
    assert_eq!(scene.told(), 2);
    assert_eq!(scene.stored(task.id).await.progress, Some(json(5)));
}
