//! Nodes that stop, crash and come back: checkpoints, drain, takeover.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul::{
    Context, JsonSchema, MaintenanceSettings, Outcome, Task, TypeSettings, WorkerSettings,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::{Home, Place, open, trial, until};

pub(crate) fn trials(place: Place) -> Vec<Trial> {
    vec![
        trial(
            place,
            "shutdowns_and_crashes::a_drain_hands_back_without_a_charge",
            a_drain_hands_back_without_a_charge,
        ),
        trial(
            place,
            "shutdowns_and_crashes::a_deploy_cancels_nothing",
            a_deploy_cancels_nothing,
        ),
        trial(
            place,
            "shutdowns_and_crashes::a_drain_lets_what_runs_finish",
            a_drain_lets_what_runs_finish,
        ),
        trial(
            place,
            "shutdowns_and_crashes::a_drain_amid_claims_runs_nothing_twice",
            a_drain_amid_claims_runs_nothing_twice,
        ),
        trial(
            place,
            "shutdowns_and_crashes::a_crashed_nodes_task_goes_on_from_its_checkpoint",
            a_crashed_nodes_task_goes_on,
        ),
        trial(
            place,
            "shutdowns_and_crashes::an_idle_node_is_not_taken_for_dead",
            an_idle_node_is_not_taken_for_dead,
        ),
        trial(
            place,
            "shutdowns_and_crashes::a_long_handlers_state_is_saved_by_itself",
            state_is_saved_by_itself,
        ),
    ]
}

#[derive(Serialize, Deserialize, JsonSchema, Default, Clone)]
struct Done {
    steps: u32,
}

/// Counts to ten and saves each step; waits at the fifth in its first attempt.
struct Steps {
    at_five: Arc<Notify>,
    go_on: Arc<Notify>,
    seen: Arc<Mutex<Vec<u32>>>,
}

impl Steps {
    fn new() -> Self {
        Self {
            at_five: Arc::default(),
            go_on: Arc::default(),
            seen: Arc::default(),
        }
    }

    fn share(&self) -> Self {
        Self {
            at_five: Arc::clone(&self.at_five),
            go_on: Arc::clone(&self.go_on),
            seen: Arc::clone(&self.seen),
        }
    }
}

impl Task for Steps {
    const TYPE: &'static str = "steps";
    type Params = ();
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        let mut done: Done = ctx.checkpoint()?.unwrap_or_default();
        let resumed_from = done.steps;
        while done.steps < 10 {
            done.steps += 1;
            self.seen.lock().unwrap().push(done.steps);
            ctx.save_checkpoint(&done).await?;
            if done.steps == 5 {
                self.at_five.notify_one();
                tokio::select! {
                    () = self.go_on.notified() => {}
                    () = ctx.cancelled() => ctx.check()?,
                }
            }
        }

        Ok(resumed_from)
    }
}

fn soon() -> WorkerSettings {
    WorkerSettings {
        drain: Duration::from_millis(50),
        ..WorkerSettings::default()
    }
}

/// Sends heartbeats far more often than the lease needs, so that no node dies on a slow machine.
fn lively() -> WorkerSettings {
    WorkerSettings {
        heartbeat: Duration::from_millis(200),
        ..WorkerSettings::default()
    }
}

async fn a_drain_hands_back_without_a_charge(database: Home) {
    let steps = Steps::new();
    let first = open(&database)
        .await
        .register(steps.share())
        .worker(soon())
        .start()
        .await
        .unwrap();

    let id = first.submit::<Steps>(()).await.unwrap().id();
    steps.at_five.notified().await;
    first.stop().await;

    let second = open(&database)
        .await
        .register(steps.share())
        .start()
        .await
        .unwrap();

    assert_eq!(second.handle::<Steps>(id).result().await.unwrap(), 5);
    let task = second.task(id).await.unwrap();
    assert_eq!(
        (task.attempt, task.retry_count, task.crash_count),
        (2, 0, 0)
    );
    assert_eq!(*steps.seen.lock().unwrap(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    second.stop().await;
}

async fn a_drain_lets_what_runs_finish(database: Home) {
    let steps = Steps::new();
    let longhaul = open(&database)
        .await
        .register(steps.share())
        .start()
        .await
        .unwrap();

    let id = longhaul.submit::<Steps>(()).await.unwrap().id();
    steps.at_five.notified().await;
    steps.go_on.notify_one();
    longhaul.stop().await;
    let after = open(&database)
        .await
        .register(steps.share())
        .without_worker()
        .unwrap();

    assert_eq!(after.handle::<Steps>(id).result().await.unwrap(), 0);
    after.stop().await;
}

/// This many have run when the node is stopped: more than one claim takes.
const AMID: usize = 1_500;

/// Notes that it ran.
struct Brief {
    ran: Arc<Mutex<Vec<u32>>>,
    is_amid: Arc<Notify>,
}

impl Task for Brief {
    const TYPE: &'static str = "brief";
    type Params = u32;
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        let mut ran = self.ran.lock().unwrap();
        ran.push(ctx.params);
        if ran.len() == AMID {
            self.is_amid.notify_one();
        }
        Ok(())
    }
}

/// Some are claimed and not started when the node stops.
async fn a_drain_amid_claims_runs_nothing_twice(database: Home) {
    const TASKS: u32 = 5_000;
    let ran = Arc::default();
    let is_amid = Arc::<Notify>::default();
    let brief = || Brief {
        ran: Arc::clone(&ran),
        is_amid: Arc::clone(&is_amid),
    };
    let submitter = open(&database)
        .await
        .register(brief())
        .without_worker()
        .unwrap();
    for first in (0..TASKS).step_by(1_000) {
        let tasks = (first..first + 1_000).map(|number| submitter.submit::<Brief>(number));
        submitter
            .submit_all(tasks.collect::<Vec<_>>())
            .await
            .unwrap();
    }
    submitter.stop().await;
    let first = open(&database)
        .await
        .register(brief())
        .slots(2_000)
        .start()
        .await
        .unwrap();
    is_amid.notified().await;
    first.stop().await;

    let second = open(&database)
        .await
        .register(brief())
        .slots(2_000)
        .start()
        .await
        .unwrap();
    until(async || {
        database
            .count("SELECT count(*) FROM tasks WHERE status <> 'COMPLETED'")
            .await
            == 0
    })
    .await;
    second.stop().await;
    let mut ran = ran.lock().unwrap().clone();
    ran.sort_unstable();
    assert!(
        ran.iter().copied().eq(0..TASKS),
        "{} runs of {TASKS} tasks",
        ran.len()
    );
    assert_eq!(
        database
            .count("SELECT count(*) FROM tasks WHERE retry_count + crash_count > 0")
            .await,
        0
    );
}

/// The first node is dropped without a shutdown, as with `kill -9`.
async fn a_crashed_nodes_task_goes_on(database: Home) {
    let steps = Steps::new();
    let first = open(&database)
        .await
        .register(steps.share())
        .start()
        .await
        .unwrap();

    let id = first.submit::<Steps>(()).await.unwrap().id();
    steps.at_five.notified().await;
    drop(first);

    let maintenance = MaintenanceSettings {
        lease: Duration::from_secs(5),
        rescue_every: Duration::from_millis(100),
        ..MaintenanceSettings::default()
    };

    let second = loop {
        // The SQLite file is free once the first process is gone.
        match longhaul::Longhaul::open(&database.url).await {
            Ok(builder) => {
                break builder
                    .register(steps.share())
                    .worker(lively())
                    .maintenance(maintenance)
                    .start()
                    .await
                    .unwrap();
            }
            // A lock that is released sends no signal. Any other error is final.
            Err(error) if error.to_string().contains("open in another process") => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    };

    assert_eq!(second.handle::<Steps>(id).result().await.unwrap(), 5);
    let task = second.task(id).await.unwrap();
    assert_eq!(
        (task.attempt, task.retry_count, task.crash_count),
        (2, 0, 1)
    );
    second.stop().await;
}

/// With a lease shorter than the time between two heartbeats of an idle node.
async fn an_idle_node_is_not_taken_for_dead(database: Home) {
    let lease = Duration::from_secs(5);
    let maintenance = MaintenanceSettings {
        lease,
        rescue_every: Duration::from_millis(50),
        ..MaintenanceSettings::default()
    };
    let longhaul = open(&database)
        .await
        .register(Steps::new())
        .worker(lively())
        .maintenance(maintenance)
        .start()
        .await
        .unwrap();
    let outlives_its_lease = |node: &longhaul_domain::NodeRecord| {
        node.heartbeat_at.micros_since(node.started_at) > lease.as_micros() as u64
            || node.lost_at.is_some()
    };
    until(async || {
        longhaul
            .engine()
            .leases()
            .list_nodes()
            .await
            .unwrap()
            .iter()
            .any(outlives_its_lease)
    })
    .await;
    let nodes = longhaul.engine().leases().list_nodes().await.unwrap();
    assert!(
        matches!(&nodes[..], [node] if node.lost_at.is_none()),
        "{nodes:?}"
    );
    longhaul.stop().await;
}

/// Changes its state once and waits to be stopped.
struct Long(Arc<Notify>);

impl Task for Long {
    const TYPE: &'static str = "long";
    type Params = ();
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        let mut state = ctx.state::<Done>()?;
        if state.steps == 0 {
            state.change(|done| done.steps = 7)?;
            self.0.notify_one();
            ctx.cancelled().await;
            ctx.check()?;
        }

        Ok(state.steps)
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().checkpoint_every(Duration::from_millis(20))
    }
}

async fn state_is_saved_by_itself(database: Home) {
    let changed = Arc::new(Notify::new());
    let first = open(&database)
        .await
        .register(Long(Arc::clone(&changed)))
        .worker(soon())
        .start()
        .await
        .unwrap();

    let id = first.submit::<Long>(()).await.unwrap().id();
    changed.notified().await;
    while first.task(id).await.unwrap().checkpoint.is_none() {
        tokio::task::yield_now().await;
    }

    first.stop().await;
    let second = open(&database)
        .await
        .register(Long(changed))
        .start()
        .await
        .unwrap();

    assert_eq!(second.handle::<Long>(id).result().await.unwrap(), 7);
    second.stop().await;
}

/// Treats every stop as a cancel.
struct Hasty(Arc<Notify>);

impl Task for Hasty {
    const TYPE: &'static str = "hasty";
    type Params = ();
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        if ctx.attempt() == 1 {
            self.0.notify_one();
            ctx.cancelled().await;
            return Err(longhaul::Stop::cancelled());
        }
        Ok(ctx.attempt())
    }
}

async fn a_deploy_cancels_nothing(database: Home) {
    let started = Arc::new(Notify::new());
    let first = open(&database)
        .await
        .register(Hasty(Arc::clone(&started)))
        .worker(soon())
        .start()
        .await
        .unwrap();

    let id = first.submit::<Hasty>(()).await.unwrap().id();
    started.notified().await;
    first.stop().await;
    let second = open(&database)
        .await
        .register(Hasty(started))
        .start()
        .await
        .unwrap();

    assert_eq!(second.handle::<Hasty>(id).result().await.unwrap(), 2);
    second.stop().await;
}
