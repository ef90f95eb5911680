//! Fair order: many tasks of one owner do not delay those of another, within a queue, between
//! queues and between priorities.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul::{
    Context, Longhaul, MaintenanceSettings, Outcome, Status, Task, TaskRecord, WorkerSettings,
};
use longhaul_domain::{
    NodeId,
    contract::store::{ClaimRequest, Leases as _, TaskCommands as _},
};
use longhaul_store::{SqlStore, StoreOptions};
use longhaul_testkit::names::queue_name;
use tokio::sync::Semaphore;

use crate::{Home, Place, open, open_with_store, trial, until};

pub(crate) fn trials(place: Place) -> Vec<Trial> {
    vec![
        trial(
            place,
            "fair_order::ten_thousand_tasks_of_one_do_not_hold_up_another",
            ten_thousand_do_not_hold_up_another,
        ),
        trial(
            place,
            "fair_order::a_process_learns_of_the_floods_of_others",
            a_process_learns_of_the_floods_of_others,
        ),
        trial(
            place,
            "fair_order::a_lone_task_is_due_when_it_was_made",
            a_lone_task_is_due_when_it_was_made,
        ),
        trial(
            place,
            "fair_order::a_freed_slot_goes_to_the_queue_that_has_none",
            a_freed_slot_goes_to_the_queue_that_has_none,
        ),
        trial(
            place,
            "fair_order::a_task_that_waits_too_long_is_started",
            a_task_that_waits_too_long_is_started,
        ),
    ]
}

struct Gated(Arc<Semaphore>);

impl Task for Gated {
    const TYPE: &'static str = "gated";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        self.0.acquire().await?.forget();
        Ok(())
    }
}

fn gated() -> Gated {
    Gated(Arc::new(Semaphore::new(0)))
}

/// Waits until the process knows the store's time and the waiting owners. From then on it orders
/// the tasks of a batch.
async fn until_it_has_looked(longhaul: &Longhaul) {
    until(async || {
        let pair = (0..2).map(|_| longhaul.submit::<Gated>(()).queue("bulk"));
        let pair = longhaul.submit_all(pair).await.unwrap();
        let first = pair[0].task().await.unwrap();
        let second = pair[1].task().await.unwrap();
        first.due_at != second.due_at
    })
    .await;
}

async fn submit_many(longhaul: &Longhaul, owner: &str, count: usize) {
    let tasks = (0..count).map(|_| longhaul.submit::<Gated>(()).owner(owner));
    longhaul.submit_all(tasks).await.unwrap();
}

async fn store_beside(database: &Home) -> SqlStore {
    let options = StoreOptions {
        is_beside: true,
        ..StoreOptions::default()
    };
    SqlStore::connect(&database.url, options).await.unwrap()
}

/// A node that claims from a store and runs nothing.
///
/// It uses the store of the process that submits: a claim of another process may miss, for some
/// seconds, tasks that become due before those that it has just claimed.
struct OtherNode {
    store: SqlStore,
    node: NodeId,
}

impl OtherNode {
    async fn new(store: SqlStore) -> Self {
        let node = NodeId(uuid::Uuid::from_u128(7));
        store
            .register_node(node, "other", "elsewhere", None)
            .await
            .unwrap();

        Self { store, node }
    }

    async fn claim(&self, limit: usize) -> Vec<TaskRecord> {
        let request = ClaimRequest {
            node_id: self.node,
            host: "elsewhere".to_owned(),
            queues: vec![queue_name("free_default")],
            task_types: vec![Gated::TYPE.to_owned()],
            limit,
        };

        self.store.claim_tasks(&request).await.unwrap()
    }
}

fn owners(tasks: &[TaskRecord]) -> Vec<&str> {
    tasks.iter().map(|task| task.owner.as_str()).collect()
}

async fn ten_thousand_do_not_hold_up_another(database: Home) {
    let (builder, store) = open_with_store(&database).await;
    let longhaul = builder.register(gated()).without_worker().unwrap();

    let other = OtherNode::new(store).await;
    until_it_has_looked(&longhaul).await;
    for _ in 0..10 {
        submit_many(&longhaul, "heavy", 1_000).await;
    }

    submit_many(&longhaul, "light", 1).await;
    let first = other.claim(3).await;
    assert!(owners(&first).contains(&"light"), "{:?}", owners(&first));

    // Some tasks of `heavy` are gone, and two owners are new: one task of each in turn.
    other.claim(100).await;
    submit_many(&longhaul, "a", 50).await;
    submit_many(&longhaul, "b", 50).await;
    let next = other.claim(90).await;
    let mut counts: HashMap<&str, usize> = HashMap::new();

    owners(&next)
        .into_iter()
        .for_each(|owner| *counts.entry(owner).or_default() += 1);
    assert!(
        ["a", "b"]
            .iter()
            .all(|owner| counts.get(owner).is_some_and(|tasks| *tasks >= 25)),
        "{counts:?}"
    );

    longhaul.stop().await;
}

async fn a_process_learns_of_the_floods_of_others(database: Home) {
    let (builder, store) = open_with_store(&database).await;
    let here = builder.register(gated()).without_worker().unwrap();

    let other = OtherNode::new(store).await;
    submit_many(&here, "heavy", 1_000).await;
    // It knows nothing of the other's tasks, as another process.
    let there = Longhaul::on(store_beside(&database).await)
        .await
        .unwrap()
        .register(gated())
        .without_worker()
        .unwrap();

    until_it_has_looked(&there).await;
    submit_many(&there, "light", 1).await;
    let first = other.claim(3).await;
    assert!(owners(&first).contains(&"light"), "{:?}", owners(&first));
    there.stop().await;
    here.stop().await;
}

async fn a_lone_task_is_due_when_it_was_made(database: Home) {
    let (builder, store) = open_with_store(&database).await;
    let longhaul = builder.register(gated()).without_worker().unwrap();

    let other = OtherNode::new(store).await;
    until_it_has_looked(&longhaul).await;
    // One commit each, because a claim may come between them.
    for (owner, priority) in [("a", 1), ("b", 2), ("c", 3)] {
        let made = longhaul
            .submit::<Gated>(())
            .owner(owner)
            .priority(priority)
            .await
            .unwrap();

        let task = longhaul.task(made.id()).await.unwrap();
        assert_eq!(task.due_at, task.created_at);
    }

    // Those of a batch are a microsecond apart, and none is due later than it was made.
    submit_many(&longhaul, "d", 20).await;
    let mut batch = other.claim(100).await;
    batch.retain(|task| task.owner == "d");
    assert_eq!(batch.len(), 20);
    assert!(
        batch
            .windows(2)
            .all(|pair| pair[1].due_at.micros_since(pair[0].due_at) == 1),
        "{batch:?}"
    );

    assert!(
        batch
            .iter()
            .all(|task| task.due_at <= task.created_at && task.waits_since() == task.created_at)
    );
    longhaul.stop().await;
}

async fn a_freed_slot_goes_to_the_queue_that_has_none(database: Home) {
    let gate = Arc::new(Semaphore::new(0));
    let slots = 4;
    let worker = WorkerSettings {
        slots,
        ..WorkerSettings::default()
    };
    let longhaul = open(&database)
        .await
        .register(Gated(Arc::clone(&gate)))
        .worker(worker)
        .start()
        .await
        .unwrap();

    submit_many(&longhaul, "heavy", 200).await;
    until(async || running(&database).await == 4).await;
    let vip = longhaul
        .submit::<Gated>(())
        .owner("light")
        .tier("enterprise")
        .await
        .unwrap();

    gate.add_permits(1);
    let mut freed = 1;

    // In a fleet a hint may come a moment after the slot was free. Its task gets the next slot. On
    // a busy machine this may happen several times before the consumer of its queue is open.
    while database.fleet.is_some() {
        until(async || ended(&database).await == freed && running(&database).await == 4).await;
        if vip.status().await.unwrap() == Status::Running {
            break;
        }

        assert!(
            freed < 30,
            "{freed} slots became free, and none was for the queue that had none"
        );
        gate.add_permits(1);
        freed += 1;
    }

    until(async || vip.status().await.unwrap() == Status::Running).await;
    until(async || ended(&database).await == freed).await;
    gate.add_permits(300);
    vip.result().await.unwrap();
    longhaul.stop().await;
}

async fn ended(database: &Home) -> i64 {
    database
        .count("SELECT count(*) FROM tasks WHERE status = 'COMPLETED'")
        .await
}

async fn running(database: &Home) -> i64 {
    database
        .count("SELECT count(*) FROM tasks WHERE status = 'RUNNING'")
        .await
}

async fn a_task_that_waits_too_long_is_started(database: Home) {
    let gate = Arc::new(Semaphore::new(0));
    let worker = WorkerSettings {
        slots: 1,
        ..WorkerSettings::default()
    };
    let maintenance = MaintenanceSettings {
        starve_after: Duration::from_millis(200),
        ..MaintenanceSettings::default()
    };

    let builder = open(&database)
        .await
        .register(Gated(Arc::clone(&gate)))
        .worker(worker)
        .maintenance(maintenance);
    let longhaul = builder.start().await.unwrap();

    // The slot is taken, and urgent tasks go before the humble one.
    let first = longhaul.submit::<Gated>(()).priority(9).await.unwrap();
    until(async || first.status().await.unwrap() == Status::Running).await;
    let humble = longhaul
        .submit::<Gated>(())
        .owner("humble")
        .priority(1)
        .await
        .unwrap();

    let mut urgent = 0;
    while humble.status().await.unwrap() == Status::Queued {
        // Two more come for each that ends: without help the humble one never starts.
        for _ in 0..2 {
            longhaul
                .submit::<Gated>(())
                .owner("urgent")
                .priority(9)
                .await
                .unwrap();
        }

        urgent += 2;
        gate.add_permits(1);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(urgent < 5_000, "it was never started");
    }

    gate.add_permits(10_000);
    humble.result().await.unwrap();
    longhaul.stop().await;
}
