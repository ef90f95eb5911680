//! Hints that name their tasks, on a node that does not poll.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longhaul::{Context, Outcome, Task, WorkerSettings};
use longhaul_domain::{
    Json, NewTask, Status, TaskId,
    contract::{Notifier, notifier::HintedTask, store::TaskCommands},
};
use longhaul_node::PollSettings;
use longhaul_sdk::Registry;
use longhaul_testkit::names::queue_name;
use tokio::sync::{Notify, Semaphore, mpsc};

use crate::{
    process::{Assembly, Process},
    remote_store::{RemoteStore, without_polling},
    store_link::Leg,
};

/// Notifies when the test says so.
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

/// Sends its parameter when it starts, and ends when it may.
struct Telling {
    started: mpsc::UnboundedSender<u32>,
    may_end: Arc<Semaphore>,
}

impl Task for Telling {
    const TYPE: &'static str = "telling";
    type Params = u32;
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        self.started.send(ctx.params)?;
        self.may_end.acquire().await?.forget();
        Ok(())
    }
}

struct World {
    remote: RemoteStore,
    hint: Arc<Named>,
    node: Process,
    started: mpsc::UnboundedReceiver<u32>,
    may_end: Arc<Semaphore>,
}

impl World {
    /// A node that has polled once and found nothing.
    async fn new(slots: usize) -> Self {
        Self::with(without_polling(slots)).await
    }

    async fn with(settings: WorkerSettings) -> Self {
        let remote = RemoteStore::new();
        let hint = Arc::new(Named::default());
        let may_end = Arc::new(Semaphore::new(0));
        let (sender, started) = mpsc::unbounded_channel();
        let telling = Telling {
            started: sender,
            may_end: Arc::clone(&may_end),
        };
        let types = |registry: &mut Registry| registry.register(telling).unwrap();
        let assembly = Assembly::new(&remote, None, Arc::clone(&hint) as _, types);

        let node = assembly.with_node(settings).await;
        remote.link.wait_for("claim_tasks", Leg::Answer, 1).await;
        remote.pass(Duration::from_secs(1)).await;
        Self {
            remote,
            hint,
            node,
            started,
            may_end,
        }
    }

    /// A task without a hint.
    async fn submit(&self, queue: &str, priority: u8, number: u32) -> TaskId {
        let parameters = Json::trusted(number.to_string());
        let task = NewTask {
            priority,
            ..NewTask::new("ann", Telling::TYPE, queue_name(queue), parameters)
        };
        self.remote.store.submit_task(task).await.unwrap().task_id
    }

    fn notify(&self, tasks: &[(TaskId, &str, &str)]) {
        let named = |(task_id, queue, task_type): &(TaskId, &str, &str)| HintedTask {
            task_id: *task_id,
            queue: queue_name(queue),
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
        self.remote.store.look(|tasks, _| tasks[&id].status)
    }

    fn polls(&self) -> usize {
        self.remote.link.count("claim_tasks", Leg::Answer)
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
    let polls = world.polls();
    let without_hint = world.submit(SERVED, 9, 1).await;
    let named = world.submit(SERVED, 1, 2).await;
    world.notify(&[(named, SERVED, Telling::TYPE)]);
    assert_eq!(world.started.recv().await, Some(2));
    world.remote.pass(Duration::from_secs(5)).await;
    assert_eq!(
        (world.polls(), world.status(without_hint)),
        (polls, Status::Queued)
    );

    world.notify(&[]);
    assert_eq!(
        world.started.recv().await,
        Some(1),
        "a hint without names may mean any task"
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_served_here_is_left_to_others() {
    let mut world = World::new(10).await;
    let polls = world.polls();
    let elsewhere = world.submit("elsewhere", 1, 1).await;
    let here = world.submit(SERVED, 1, 2).await;
    world.notify(&[
        (elsewhere, "elsewhere", Telling::TYPE),
        (here, SERVED, "unknown"),
    ]);
    world.remote.pass(Duration::from_secs(5)).await;

    assert_eq!(world.remote.link.count("claim_named", Leg::Request), 0);
    world.notify(&[
        (elsewhere, "elsewhere", Telling::TYPE),
        (here, SERVED, Telling::TYPE),
    ]);
    assert_eq!(world.started.recv().await, Some(2));
    world.remote.pass(Duration::from_secs(5)).await;
    assert_eq!(
        (world.polls(), world.status(elsewhere)),
        (polls, Status::Queued)
    );

    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_without_a_slot_does_not_overtake_by_its_name() {
    let mut world = World::new(1).await;
    let running = world.submit(SERVED, 1, 1).await;
    world.notify(&[(running, SERVED, Telling::TYPE)]);
    assert_eq!(world.started.recv().await, Some(1));
    let urgent = world.submit(SERVED, 9, 2).await;
    let named = world.submit(SERVED, 1, 3).await;

    world.notify(&[(named, SERVED, Telling::TYPE)]);
    world.remote.pass(Duration::from_secs(1)).await;
    assert_eq!(
        (world.status(urgent), world.status(named)),
        (Status::Queued, Status::Queued)
    );
    world.may_end.add_permits(1);
    assert_eq!(world.started.recv().await, Some(2));
    world.may_end.add_permits(1);

    assert_eq!(world.started.recv().await, Some(3));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_to_a_name_is_looked_into() {
    let mut world = World::new(10).await;
    let task = world.submit(SERVED, 1, 1).await;
    world.remote.link.cut(true);
    world.notify(&[(task, SERVED, Telling::TYPE)]);
    world.remote.pass(Duration::from_secs(2)).await;
    assert_eq!(world.status(task), Status::Queued);
    world.remote.link.cut(false);
    let started = tokio::time::timeout(Duration::from_secs(5), world.started.recv()).await;

    assert_eq!(
        started,
        Ok(Some(1)),
        "the claimer claims again after its rest"
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn however_many_hints_there_are_the_next_look_comes() {
    let second = Duration::from_secs(1);
    let poll = PollSettings {
        least: second,
        most: second,
    };
    let world = World::with(WorkerSettings {
        poll,
        ..without_polling(100)
    })
    .await;
    let mut without_hint = None;

    for number in 1..=10 {
        let hinted = world.submit(SERVED, 1, number).await;
        world.notify(&[(hinted, SERVED, Telling::TYPE)]);
        world.remote.pass(second / 2).await;
        if without_hint.is_none() {
            without_hint = Some(world.submit(SERVED, 1, 0).await);
        }
    }

    assert_eq!(
        without_hint.map(|id| world.status(id)),
        Some(Status::Running)
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_claims_nothing_by_name() {
    // Many times, because the node may see the hint or the stop first.
    for _ in 0..20 {
        let world = World::new(10).await;
        let task = world.submit(SERVED, 1, 1).await;
        world.notify(&[(task, SERVED, Telling::TYPE)]);
        world.node.stop().await;
        assert_eq!(world.remote.link.count("claim_named", Leg::Request), 0);
        assert_eq!(world.remote.store.look(|tasks, _| tasks[&task].attempt), 0);
    }
}
