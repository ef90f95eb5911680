//! Hooks, when the store's answer is lost.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use longhaul::{Context, Outcome, Status, Stop, Task, TaskInfo};

use crate::{remote_store::RemoteStore, store_link::Leg};

/// Fails, and counts the calls of its cancel hook.
#[derive(Clone, Default)]
struct Failing(Arc<AtomicUsize>);

impl Task for Failing {
    const TYPE: &'static str = "failing";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        Err(Stop::retry_after("not yet", Duration::from_secs(86_400)))
    }

    async fn on_cancelled(&self, _task: &TaskInfo) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_had_failed_before_the_cancel_does_not_tell_of_it_again() {
    let remote = RemoteStore::new();
    let failing = Failing::default();
    let longhaul = remote
        .builder()
        .register(failing.clone())
        .start()
        .await
        .unwrap();

    remote.link.hold("finish_tasks", Leg::Answer);
    let handle = longhaul.submit::<Failing>(()).await.unwrap();
    remote.link.wait_for("finish_tasks", Leg::Answer, 1).await;
    assert_eq!(handle.status().await.unwrap(), Status::Retrying);
    handle.cancel().await.unwrap();

    // The node stops waiting for the answer and reports again.
    remote.link.wait_for("finish_tasks", Leg::Answer, 2).await;
    remote.link.free("finish_tasks", Leg::Answer);
    longhaul.stop().await;
    assert_eq!(failing.0.load(Ordering::SeqCst), 1);
}
