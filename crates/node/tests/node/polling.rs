//! Tasks without a hint, because another process made them: a node finds them by polling.

use std::time::Duration;

use longhaul::{Context, Outcome, Task, Why};
use longhaul_domain::{Json, NewTask, contract::store::TaskCommands};
use longhaul_testkit::names::queue_name;
use tokio::{sync::mpsc, time::timeout};

use crate::remote_store::RemoteStore;

/// Sends a message when it runs.
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
    let remote = RemoteStore::new();
    let (telling, mut started) = mpsc::unbounded_channel();
    let longhaul = remote
        .builder()
        .register(Telling(telling))
        .start()
        .await
        .unwrap();

    let new_task = || {
        let queue = queue_name("free_default");
        NewTask::new("ann", Telling::TYPE, queue, Json::trusted("null"))
    };
    remote.pass(Duration::from_secs(10)).await;
    remote.store.submit_task(new_task()).await.unwrap();
    longhaul.wake();
    timeout(Duration::from_secs(1), started.recv())
        .await
        .unwrap();
    remote.store.submit_task(new_task()).await.unwrap();
    timeout(Duration::from_millis(30), started.recv())
        .await
        .expect("after a find the node polls again soon");

    longhaul.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_in_a_queue_that_nobody_serves_says_so() {
    let remote = RemoteStore::new();
    let (telling, _started) = mpsc::unbounded_channel();
    let longhaul = remote
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
