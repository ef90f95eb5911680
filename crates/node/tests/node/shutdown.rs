//! A shutdown hands tasks back without a charge, gives handlers its reason, and waits for hooks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul::{Context, Outcome, Status, StopReason, Task, TaskInfo, WorkerSettings};
use longhaul_domain::{
    Json, NewTask,
    contract::store::{ClaimRequest, TaskCommands},
};
use longhaul_testkit::names::queue_name;
use tokio::sync::{Notify, oneshot};

use crate::memory_store::{Echo, on, store};

#[tokio::test]
async fn a_task_whose_claim_had_no_answer_goes_back_without_a_charge() {
    let store = Arc::new(store());
    let longhaul = on(&store).register(Echo).start().await.unwrap();
    let node_id = longhaul.sdk_client().engine.local_node().unwrap().id();
    let task = NewTask::new(
        "ann",
        "elsewhere",
        queue_name("free_default"),
        Json::trusted("1".to_owned()),
    );

    let id = store.submit_task(task).await.unwrap().task_id;
    let queues = vec![queue_name("free_default")];
    let task_types = vec!["elsewhere".to_owned()];
    let request = ClaimRequest {
        node_id,
        host: "host".to_owned(),
        queues,
        task_types,
        limit: 1,
    };

    assert_eq!(
        store.claim_tasks(&request).await.unwrap().len(),
        1,
        "the node does not get this answer"
    );
    longhaul.stop().await;
    store.look(|tasks, _| {
        assert_eq!(
            (tasks[&id].status, tasks[&id].crash_count),
            (Status::Queued, 0)
        )
    });
}

/// Runs until it should stop, and sends the reason.
struct Waits(
    Mutex<Option<oneshot::Sender<()>>>,
    Mutex<Option<oneshot::Sender<Option<StopReason>>>>,
);

impl Task for Waits {
    const TYPE: &'static str = "waits";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        assert_eq!(ctx.stop_reason(), None);
        let started = self.0.lock().unwrap().take();
        let reason = self.1.lock().unwrap().take();
        started.unwrap().send(()).unwrap();
        ctx.cancelled().await;
        reason.unwrap().send(ctx.stop_reason()).unwrap();
        ctx.check()
    }
}

#[tokio::test]
async fn a_handler_can_tell_a_shutdown_from_a_cancel() {
    for reason in [StopReason::Cancelled, StopReason::Drain] {
        let (start, started) = oneshot::channel();
        let (sender, received) = oneshot::channel();
        let waits = Waits(Mutex::new(Some(start)), Mutex::new(Some(sender)));
        let soon = WorkerSettings {
            drain: Duration::ZERO,
            ..WorkerSettings::default()
        };
        let longhaul = on(&Arc::new(store()))
            .register(waits)
            .worker(soon)
            .start()
            .await
            .unwrap();

        let handle = longhaul.submit::<Waits>(()).await.unwrap();
        started.await.unwrap();
        if reason == StopReason::Cancelled {
            handle.cancel().await.unwrap();
            assert_eq!(received.await, Ok(Some(reason)));
            longhaul.stop().await;
        } else {
            longhaul.stop().await;
            assert_eq!(received.await, Ok(Some(reason)));
        }
    }
}

/// Its hooks are slow.
#[derive(Clone, Default)]
struct Slow(Arc<Notify>, Arc<Mutex<bool>>);

impl Task for Slow {
    const TYPE: &'static str = "slow";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        Ok(())
    }

    async fn on_completed(&self, _task: &TaskInfo) {
        self.0.notify_one();
        tokio::time::sleep(Duration::from_secs(1)).await;
        *self.1.lock().unwrap() = true;
    }

    async fn on_cancelled(&self, task: &TaskInfo) {
        self.on_completed(task).await;
    }
}

/// With tokio's clock paused, which skips the waits.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_hooks() {
    let slow = Slow::default();
    let store = Arc::new(store());
    let longhaul = on(&store).register(slow.clone()).start().await.unwrap();
    longhaul.submit::<Slow>(()).await.unwrap();
    slow.0.notified().await;
    longhaul.stop().await;
    assert!(*slow.1.lock().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_process_without_a_worker_waits_for_hooks_as_well() {
    let slow = Slow::default();
    let store = Arc::new(store());
    let longhaul = on(&store).register(slow.clone()).without_worker().unwrap();
    longhaul
        .submit::<Slow>(())
        .await
        .unwrap()
        .cancel()
        .await
        .unwrap();

    longhaul.stop().await;
    assert!(*slow.1.lock().unwrap());
}
