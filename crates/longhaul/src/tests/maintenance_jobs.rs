//! When the maintenance of a node look.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::NodeId;
use longhaul_engine::Engine;
use longhaul_node::maintenance::job::{self, MaintenanceJob, Pass};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Far, line::Way};
use crate::StoreError;

/// Notes when it looked.
#[derive(Debug, Default)]
struct Noted {
    is_urgent: bool,
    wake: Notify,
    looks: Mutex<Vec<Instant>>,
    looked: Notify,
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
        self.looks.lock().unwrap().push(Instant::now());
        self.looked.notify_one();
        Ok(Pass::Clear)
    }
}

/// How long after the start it looks first, in hundredths of a second, and how long after that
/// again, in seconds.
async fn first_looks(is_urgent: bool, is_woken: bool, jitter: f64) -> (u128, u64) {
    let job = Arc::new(Noted {
        is_urgent,
        ..Noted::default()
    });
    if is_woken {
        job.wake.notify_one();
    }

    let longhaul = Far::new().builder().without_worker().unwrap();
    let engine = Arc::clone(&longhaul.client.engine);
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

    job.looked.notified().await;
    job.looked.notified().await;
    stop.cancel();
    running.await.unwrap();
    let looks = job.looks.lock().unwrap();

    (
        (looks[0] - started).as_millis() / 10,
        (looks[1] - looks[0]).as_secs(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_duty_that_can_wait_lets_its_node_start_first() {
    assert_eq!(first_looks(false, false, 0.0).await, (50, 60));
    assert_eq!(first_looks(false, false, 1.0).await, (100, 60));
    assert_eq!(
        first_looks(true, false, 1.0).await,
        (0, 60),
        "somebody waits for it"
    );
    assert_eq!(first_looks(false, true, 1.0).await, (0, 60), "it was woken");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_looks_for_dead_ones_at_once_and_does_the_rest_soon() {
    let far = Far::new();
    let longhaul = far.builder().start().await.unwrap();
    far.pass(Duration::from_millis(300)).await;
    let counts = ["rescue_tasks", "take_maintenance_lease"]
        .map(|operation| far.line.count(operation, Way::There));

    assert_eq!(counts, [1, 1], "the rescuer's, and nobody else's");
    far.pass(Duration::from_millis(800)).await;
    assert_eq!(
        far.line.count("take_maintenance_lease", Way::There),
        7,
        "of each job"
    );
    longhaul.stop().await;
}
