//! Hooks, when the answer of the store that they would be called for is lost.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use super::{Far, line::Way};
use crate::{Context, Outcome, Status, Stop, Task, TaskInfo};

/// Fails, and counts how often it is told of a cancel.
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
    let far = Far::new();
    let failing = Failing::default();
    let longhaul = far
        .builder()
        .register(failing.clone())
        .start()
        .await
        .unwrap();

    far.line.hold("finish_tasks", Way::Back);
    let handle = longhaul.submit::<Failing>(()).await.unwrap();
    far.line.comes_by("finish_tasks", Way::Back, 1).await;
    assert_eq!(handle.status().await.unwrap(), Status::Retrying);
    handle.cancel().await.unwrap();

    // The worker gives the answer up and reports once more.
    far.line.comes_by("finish_tasks", Way::Back, 2).await;
    far.line.free("finish_tasks", Way::Back);
    longhaul.stop().await;
    assert_eq!(failing.0.load(Ordering::SeqCst), 1);
}
