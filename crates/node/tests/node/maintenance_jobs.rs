//! When maintenance jobs run, and that they stop between two passes.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use async_trait::async_trait;
use longhaul::StoreError;
use longhaul_domain::NodeId;
use longhaul_engine::Engine;
use longhaul_node::maintenance::job::{self, MaintenanceJob, Pass};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{remote_store::RemoteStore, store_link::Leg};

/// Notes when it runs.
#[derive(Debug, Default)]
struct Noted {
    is_urgent: bool,
    wake: Notify,
    passes: Mutex<Vec<Instant>>,
    has_run: Notify,
}

#[async_trait]
impl MaintenanceJob for Noted {
    fn name(&self) -> &'static str {
        "noted"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    async fn woken(&self, _engine: &Engine) {
        self.wake.notified().await;
    }

    async fn pass(&self, _engine: &Engine) -> Result<Pass, StoreError> {
        self.passes.lock().unwrap().push(Instant::now());
        self.has_run.notify_one();
        Ok(Pass::Clear)
    }
}

/// The time from the start to the first pass, in hundredths of a second, and from there to the
/// second, in seconds.
async fn first_passes(is_urgent: bool, is_woken: bool, jitter: f64) -> (u128, u64) {
    let job = Arc::new(Noted {
        is_urgent,
        ..Noted::default()
    });
    if is_woken {
        job.wake.notify_one();
    }

    let longhaul = RemoteStore::new().builder().without_worker().unwrap();
    let engine = Arc::clone(&longhaul.sdk_client().engine);
    let stop = CancellationToken::new();
    let started = Instant::now();
    let node = NodeId(uuid::Uuid::nil());
    let running = tokio::spawn(job::run(
        engine,
        node,
        Arc::<Noted>::clone(&job),
        stop.clone(),
        jitter,
    ));

    job.has_run.notified().await;
    job.has_run.notified().await;
    stop.cancel();
    running.await.unwrap();
    let passes = job.passes.lock().unwrap();

    (
        (passes[0] - started).as_millis() / 10,
        (passes[1] - passes[0]).as_secs(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_duty_that_can_wait_lets_its_node_start_first() {
    assert_eq!(first_passes(false, false, 0.0).await, (50, 60));
    assert_eq!(first_passes(false, false, 1.0).await, (100, 60));
    assert_eq!(
        first_passes(true, false, 1.0).await,
        (0, 60),
        "it is urgent"
    );
    assert_eq!(
        first_passes(false, true, 1.0).await,
        (0, 60),
        "it was woken"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_looks_for_dead_ones_at_once_and_does_the_rest_soon() {
    let remote = RemoteStore::new();
    let longhaul = remote.builder().start().await.unwrap();
    remote.pass(Duration::from_millis(300)).await;
    let counts = ["rescue_tasks", "take_maintenance_lease"]
        .map(|operation| remote.link.count(operation, Leg::Request));

    assert_eq!(counts, [1, 1], "only the rescuer's");
    remote.pass(Duration::from_millis(800)).await;
    assert_eq!(
        remote.link.count("take_maintenance_lease", Leg::Request),
        7,
        "of each job"
    );
    longhaul.stop().await;
}

/// Always has more to do, and is stopped in its second pass.
#[derive(Debug, Default)]
struct Endless {
    passes: AtomicUsize,
    stop: CancellationToken,
}

#[async_trait]
impl MaintenanceJob for Endless {
    fn name(&self) -> &'static str {
        "endless"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn pass(&self, _engine: &Engine) -> Result<Pass, StoreError> {
        if self.passes.fetch_add(1, Ordering::SeqCst) == 1 {
            self.stop.cancel();
        }
        Ok(Pass::More)
    }
}

#[tokio::test]
async fn a_duty_stops_between_two_passes() {
    let longhaul = RemoteStore::new().builder().without_worker().unwrap();
    let job = Endless::default();
    job::round(
        longhaul.engine(),
        NodeId(uuid::Uuid::nil()),
        &job,
        &job.stop,
    )
    .await
    .unwrap();
    assert_eq!(job.passes.load(Ordering::SeqCst), 2);
}
