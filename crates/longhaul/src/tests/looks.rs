//! Tasks that no hint hints for, because another process made them.

use std::time::Duration;

use longhaul_domain::{Json, NewTask, contract::store::TaskCommands};
use tokio::{sync::mpsc, time::timeout};

use super::Far;
use crate::{Context, Outcome, Task, Why};

/// Says that it runs.
struct Telling(mpsc::UnboundedSender<()>);

impl Task for Telling {
    const TYPE: &'static str = "telling";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        Ok(self.0.send(())?)
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_look_after_a_find_comes_soon() {
    let far = Far::new();
    let (telling, mut told) = mpsc::unbounded_channel();
    let longhaul = far
        .builder()
        .register(Telling(telling))
        .start()
        .await
        .unwrap();

    let unheard = || NewTask::new("ann", Telling::TYPE, "free_default", Json::trusted("null"));
    far.pass(Duration::from_secs(10)).await;
    far.store.submit_task(unheard()).await.unwrap();
    longhaul.wake();
    timeout(Duration::from_secs(1), told.recv()).await.unwrap();
    far.store.submit_task(unheard()).await.unwrap();
    timeout(Duration::from_millis(30), told.recv())
        .await
        .expect("whoever found one task looks for the next");

    longhaul.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_in_a_queue_that_nobody_serves_says_so() {
    let far = Far::new();
    let (telling, _told) = mpsc::unbounded_channel();
    let longhaul = far
        .builder()
        .register(Telling(telling))
        .start()
        .await
        .unwrap();

    let handle = longhaul
        .submit::<Telling>(())
        .queue("nobodys")
        .await
        .unwrap();
    let why = handle.why().await.unwrap();

    assert!(
        matches!(&why, Why::QueueNotServed { queue, .. } if queue == "nobodys"),
        "{why:?}"
    );
    longhaul.stop().await;
}
