//! Rings that name their tasks, on a node that does not look by itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{
    Json, NewTask, Status, TaskId,
    contract::{Notifier, notifier::HintedTask, store::TaskCommands},
};
use longhaul_node::PollSettings;
use tokio::sync::{Notify, Semaphore, mpsc};

use super::{Far, deaf, line::Way, working};
use crate::{Context, Longhaul, Outcome, Task, WorkerSettings};

/// Rings when the test says so.
#[derive(Debug, Default)]
struct Named {
    published: Notify,
    tasks: Mutex<Vec<HintedTask>>,
}

#[async_trait]
impl Notifier for Named {
    fn notify(&self, _queue: &str) {}

    async fn notified(&self) -> Vec<HintedTask> {
        self.published.notified().await;
        std::mem::take(&mut *self.tasks.lock().unwrap())
    }
}

/// Says which parameters it runs with, and ends when it may.
struct Telling {
    told: mpsc::UnboundedSender<u32>,
    may_end: Arc<Semaphore>,
}

impl Task for Telling {
    const TYPE: &'static str = "telling";
    type Params = u32;
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        self.told.send(ctx.params)?;
        self.may_end.acquire().await?.forget();
        Ok(())
    }
}

struct World {
    far: Far,
    hint: Arc<Named>,
    node: Longhaul,
    told: mpsc::UnboundedReceiver<u32>,
    may_end: Arc<Semaphore>,
}

impl World {
    /// A node that has looked once and found nothing.
    async fn new(slots: usize) -> Self {
        Self::with(deaf(slots)).await
    }

    async fn with(settings: WorkerSettings) -> Self {
        let far = Far::new();
        let hint = Arc::new(Named::default());
        let may_end = Arc::new(Semaphore::new(0));
        let (tell, told) = mpsc::unbounded_channel();
        let telling = Telling {
            told: tell,
            may_end: Arc::clone(&may_end),
        };
        let client = far.client(
            |parts| parts,
            Arc::clone(&hint) as _,
            |registry| {
                registry.register(telling).unwrap();
            },
        );

        let node = working(client, settings).await;
        far.line.comes_by("claim_tasks", Way::Back, 1).await;
        far.pass(Duration::from_secs(1)).await;
        Self {
            far,
            hint,
            node,
            told,
            may_end,
        }
    }

    /// A task that nobody hints for.
    async fn submit(&self, queue: &str, priority: u8, number: u32) -> TaskId {
        let parameters = Json::trusted(number.to_string());
        let task = NewTask {
            priority,
            ..NewTask::new("ann", Telling::TYPE, queue, parameters)
        };
        self.far.store.submit_task(task).await.unwrap().task_id
    }

    fn notify(&self, tasks: &[(TaskId, &str, &str)]) {
        let named = |(task_id, queue, task_type): &(TaskId, &str, &str)| HintedTask {
            task_id: *task_id,
            queue: (*queue).to_owned(),
            task_type: (*task_type).to_owned(),
        };

        self.hint
            .tasks
            .lock()
            .unwrap()
            .extend(tasks.iter().map(named));
        self.hint.published.notify_one();
    }

    fn status(&self, id: TaskId) -> Status {
        self.far.store.look(|tasks, _| tasks[&id].status)
    }

    fn looks(&self) -> usize {
        self.far.line.count("claim_tasks", Way::Back)
    }

    async fn stop(self) {
        self.may_end.close();
        self.node.stop().await;
    }
}

const SERVED: &str = "free_default";

#[tokio::test(start_paused = true)]
async fn a_named_task_is_claimed_without_a_look_for_others() {
    let mut world = World::new(10).await;
    let looks = world.looks();
    let unheard = world.submit(SERVED, 9, 1).await;
    let named = world.submit(SERVED, 1, 2).await;
    world.notify(&[(named, SERVED, Telling::TYPE)]);
    assert_eq!(world.told.recv().await, Some(2));
    world.far.pass(Duration::from_secs(5)).await;
    assert_eq!(
        (world.looks(), world.status(unheard)),
        (looks, Status::Queued)
    );

    world.notify(&[]);
    assert_eq!(
        world.told.recv().await,
        Some(1),
        "a hint that names nothing is about anything"
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_served_here_is_left_to_others() {
    let mut world = World::new(10).await;
    let looks = world.looks();
    let elsewhere = world.submit("elsewhere", 1, 1).await;
    let here = world.submit(SERVED, 1, 2).await;
    world.notify(&[
        (elsewhere, "elsewhere", Telling::TYPE),
        (here, SERVED, "unknown"),
    ]);
    world.far.pass(Duration::from_secs(5)).await;

    assert_eq!(world.far.line.count("claim_named", Way::There), 0);
    world.notify(&[
        (elsewhere, "elsewhere", Telling::TYPE),
        (here, SERVED, Telling::TYPE),
    ]);
    assert_eq!(world.told.recv().await, Some(2));
    world.far.pass(Duration::from_secs(5)).await;
    assert_eq!(
        (world.looks(), world.status(elsewhere)),
        (looks, Status::Queued)
    );

    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_without_a_slot_does_not_overtake_by_its_name() {
    let mut world = World::new(1).await;
    let running = world.submit(SERVED, 1, 1).await;
    world.notify(&[(running, SERVED, Telling::TYPE)]);
    assert_eq!(world.told.recv().await, Some(1));
    let urgent = world.submit(SERVED, 9, 2).await;
    let named = world.submit(SERVED, 1, 3).await;

    world.notify(&[(named, SERVED, Telling::TYPE)]);
    world.far.pass(Duration::from_secs(1)).await;
    assert_eq!(
        (world.status(urgent), world.status(named)),
        (Status::Queued, Status::Queued)
    );
    world.may_end.add_permits(1);
    assert_eq!(world.told.recv().await, Some(2));
    world.may_end.add_permits(1);

    assert_eq!(world.told.recv().await, Some(3));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_to_a_name_is_looked_into() {
    let mut world = World::new(10).await;
    let task = world.submit(SERVED, 1, 1).await;
    world.far.line.cut(true);
    world.notify(&[(task, SERVED, Telling::TYPE)]);
    world.far.pass(Duration::from_secs(2)).await;
    assert_eq!(world.status(task), Status::Queued);
    world.far.line.cut(false);
    let told = tokio::time::timeout(Duration::from_secs(5), world.told.recv()).await;

    assert_eq!(told, Ok(Some(1)), "the claimer goes on after its rest");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn however_many_hints_there_are_the_next_look_comes() {
    let second = Duration::from_secs(1);
    let poll = PollSettings {
        least: second,
        most: second,
    };
    let world = World::with(WorkerSettings { poll, ..deaf(100) }).await;
    let mut unheard = None;

    for number in 1..=10 {
        let heard = world.submit(SERVED, 1, number).await;
        world.notify(&[(heard, SERVED, Telling::TYPE)]);
        world.far.pass(second / 2).await;
        if unheard.is_none() {
            unheard = Some(world.submit(SERVED, 1, 0).await);
        }
    }

    assert_eq!(unheard.map(|id| world.status(id)), Some(Status::Running));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_claims_nothing_by_name() {
    // Whether the hint or the stop is seen first would otherwise be a matter of luck.
    for _ in 0..20 {
        let world = World::new(10).await;
        let task = world.submit(SERVED, 1, 1).await;
        world.notify(&[(task, SERVED, Telling::TYPE)]);
        world.node.stop().await;
        assert_eq!(world.far.line.count("claim_named", Way::There), 0);
        assert_eq!(world.far.store.look(|tasks, _| tasks[&task].attempt), 0);
    }
}
