//! A program without any feature: tasks in a SQLite file. `make test` runs this once with all
//! features of the library and once with none.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests; a failure stops the test"
)]

mod file_urls;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use longhaul::{
    Context, Longhaul, Outcome, QueueSlots, Status, StopSignal, Task, TaskId, WorkerSettings,
};
use rustix::process::{Signal, getpid, kill_process};
use tokio::{sync::Semaphore, time::timeout};

/// Doubles a number, once the gate is open.
struct Double(Arc<Semaphore>);

impl Task for Double {
    const TYPE: &'static str = "double";
    type Params = u32;
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        let _open = self.0.acquire().await?;
        Ok(ctx.params * 2)
    }
}

const DEADLINE: Duration = Duration::from_secs(60);

/// A process with a task that runs until the gate opens.
async fn running(url: &str, gate: &Arc<Semaphore>) -> (Longhaul, TaskId) {
    let longhaul = Longhaul::open(url)
        .await
        .unwrap()
        .register(Double(Arc::clone(gate)))
        .start()
        .await
        .unwrap();

    let handle = longhaul.submit::<Double>(21).await.unwrap();
    let is_running = async {
        while handle.status().await.unwrap() != Status::Running {
            tokio::task::yield_now().await;
        }
    };

    timeout(DEADLINE, is_running).await.unwrap();
    (longhaul, handle.id())
}

/// Sends this process a SIGTERM. When this returns, all of its listeners have received it.
async fn terminate(signal: &mut StopSignal) {
    kill_process(getpid(), Signal::TERM).unwrap();
    timeout(DEADLINE, signal.received()).await.unwrap();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// One case, because the whole process receives a signal.
#[tokio::test]
async fn at_a_signal_what_runs_may_finish_and_a_second_one_does_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let mut signal = StopSignal::new().unwrap();
    let url = |name: &str| format!("sqlite://{}", folder.path().join(name).display());
    let gate = Arc::new(Semaphore::new(0));
    let (longhaul, id) = running(&url("patient.db"), &gate).await;
    let mut stopping = tokio::spawn(longhaul.stop_at_signal());

    tokio::task::yield_now().await;
    assert!(!stopping.is_finished(), "no signal was sent");
    terminate(&mut signal).await;
    assert!(!stopping.is_finished(), "it waits for what runs");
    gate.add_permits(1);
    timeout(DEADLINE, &mut stopping)
        .await
        .unwrap()
        .unwrap()
        .unwrap();

    let again = Longhaul::open(&url("patient.db"))
        .await
        .unwrap()
        .without_worker()
        .unwrap();

    assert_eq!(
        timeout(DEADLINE, again.handle::<Double>(id).result())
            .await
            .unwrap()
            .unwrap(),
        42
    );

    gate.forget_permits(1);
    let (longhaul, _) = running(&url("hasty.db"), &gate).await;
    let stopping = tokio::spawn(longhaul.stop_at_signal());
    tokio::task::yield_now().await;
    terminate(&mut signal).await;
    assert!(!stopping.is_finished(), "it waits for what runs");
    terminate(&mut signal).await;
    timeout(DEADLINE / 4, stopping)
        .await
        .expect("a second signal ends the wait of 30 s")
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_worker_without_slots_is_refused_and_a_node_without_tasks_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("sqlite://{}", folder.path().join(name).display());
    let double = || Double(Arc::new(Semaphore::new(0)));

    let refused = Longhaul::open(&url("a.db"))
        .await
        .unwrap()
        .register(double())
        .slots(0)
        .start()
        .await
        .err()
        .unwrap();
    assert!(refused.to_string().contains("slots is 0"), "{refused}");

    let reserved = QueueSlots {
        reserved: 3,
        ..QueueSlots::shared("q")
    };
    let worker = WorkerSettings {
        slots: 2,
        queues: vec![reserved],
        ..WorkerSettings::default()
    };

    let refused = Longhaul::open(&url("c.db"))
        .await
        .unwrap()
        .worker(worker)
        .start()
        .await
        .err()
        .unwrap();

    assert!(
        refused
            .to_string()
            .contains("slots is 2, and queues reserve 3"),
        "{refused}"
    );

    let maintenance = Longhaul::open(&url("b.db"))
        .await
        .unwrap()
        .register(double())
        .start_maintenance()
        .await
        .unwrap();

    maintenance.stop().await;
}

#[tokio::test]
async fn a_store_that_nobody_knows_is_told_by_its_scheme_alone() {
    let error = Longhaul::open("oracle://ann:secret@db/x")
        .await
        .err()
        .unwrap()
        .to_string();

    assert!(
        error.contains(r#"starts with "oracle""#) && error.contains("postgres://"),
        "{error}"
    );
    assert!(!error.contains("secret"), "{error}");
}

#[cfg(not(any(feature = "postgres", feature = "mysql")))]
#[tokio::test]
async fn a_database_whose_driver_was_left_out_is_told_by_its_feature() {
    for (url, feature) in [
        ("postgres://ann:secret@127.0.0.1/x", "postgres"),
        ("mariadb://ann:secret@127.0.0.1/x", "mysql"),
    ] {
        let error = Longhaul::open(url).await.err().unwrap().to_string();
        assert!(
            error.contains(&format!("the feature {feature:?} in Cargo.toml")),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }
}
