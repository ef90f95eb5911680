//! Turns: nobody's flood holds up another's task, within a queue, between queues, and between
//! priorities.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul::{
    Context, Longhaul, MaintenanceSettings, Outcome, Status, Task, TaskRecord, WorkerSettings,
};
use longhaul_domain::{NodeId, contract::store::ClaimRequest};
use longhaul_store::{SqlStore, StoreOptions};
use tokio::sync::Semaphore;

use crate::{Home, Place, open, trial, until};

pub(crate) fn trials(place: Place) -> Vec<Trial> {
    vec![
        trial(
            place,
            "turns::ten_thousand_tasks_of_one_do_not_hold_up_another",
            ten_thousand_do_not_hold_up_another,
        ),
        trial(
            place,
            "turns::a_process_learns_of_the_floods_of_others",
            a_process_learns_of_the_floods_of_others,
        ),
        trial(
            place,
            "turns::a_lone_task_is_due_when_it_was_made",
            a_lone_task_is_due_when_it_was_made,
        ),
        trial(
            place,
            "turns::a_freed_slot_goes_to_the_queue_that_has_none",
            a_freed_slot_goes_to_the_queue_that_has_none,
        ),
        trial(
            place,
            "turns::whoever_has_waited_too_long_is_started",
            whoever_has_waited_too_long_is_started,
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

/// Waits until the process knows the store's time and who waits there: from then on it gives those
/// of a batch places, one after the other.
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

/// Claims as a node of another process would.
async fn claim(longhaul: &Longhaul, node: NodeId, limit: usize) -> Vec<TaskRecord> {
    let request = ClaimRequest {
        node_id: node,
        host: "elsewhere".to_owned(),
        queues: vec!["free_default".to_owned()],
        task_types: vec![Gated::TYPE.to_owned()],
        limit,
    };

    longhaul.store().claim_tasks(&request).await.unwrap()
}

async fn node_of(longhaul: &Longhaul) -> NodeId {
    let node = NodeId(uuid::Uuid::from_u128(7));
    longhaul
        .store()
        .register_node(node, "other", "elsewhere", None)
        .await
        .unwrap();
    node
}

fn owners(tasks: &[TaskRecord]) -> Vec<&str> {
    tasks.iter().map(|task| task.owner.as_str()).collect()
}

async fn ten_thousand_do_not_hold_up_another(database: Home) {
    let longhaul = open(&database)
        .await
        .register(gated())
        .without_worker()
        .unwrap();

    until_it_has_looked(&longhaul).await;
    for _ in 0..10 {
        submit_many(&longhaul, "heavy", 1_000).await;
    }

    submit_many(&longhaul, "light", 1).await;
    let node = node_of(&longhaul).await;
    let first = claim(&longhaul, node, 3).await;
    assert!(owners(&first).contains(&"light"), "{:?}", owners(&first));

    // Some of the heavy one's are gone, and two come new: they take turns, one task each.
    claim(&longhaul, node, 100).await;
    submit_many(&longhaul, "a", 50).await;
    submit_many(&longhaul, "b", 50).await;
    let next = claim(&longhaul, node, 90).await;
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
    let here = open(&database)
        .await
        .register(gated())
        .without_worker()
        .unwrap();

    submit_many(&here, "heavy", 1_000).await;
    // One that has been told nothing, as another process is.
    let options = StoreOptions {
        is_beside: true,
        ..StoreOptions::default()
    };
    let store = SqlStore::connect(&database.url, options).await.unwrap();
    let there = Longhaul::on(store)
        .await
        .unwrap()
        .register(gated())
        .without_worker()
        .unwrap();

    until_it_has_looked(&there).await;
    submit_many(&there, "light", 1).await;
    let node = node_of(&here).await;
    let first = claim(&here, node, 3).await;
    assert!(owners(&first).contains(&"light"), "{:?}", owners(&first));
    there.stop().await;
    here.stop().await;
}

async fn a_lone_task_is_due_when_it_was_made(database: Home) {
    let longhaul = open(&database)
        .await
        .register(gated())
        .without_worker()
        .unwrap();

    until_it_has_looked(&longhaul).await;
    // Each in a line of its own, for somebody may look between them.
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
    let node = node_of(&longhaul).await;
    let mut batch = claim(&longhaul, node, 100).await;
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

    // In a fleet a hint may come a moment after the slot was free: then the next one is its. On a
    // busy machine several such moments pass before the consumer of its queue is open.
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

async fn whoever_has_waited_too_long_is_started(database: Home) {
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

    // The slot is taken, and whatever is urgent goes before the one that is not.
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
        // Two more come for each that ends: without help the humble one waits for ever.
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
