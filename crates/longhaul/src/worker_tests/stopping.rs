//! What a shutdown leaves behind: nothing that anybody is charged for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_domain::{
    Json, NewTask,
    contract::store::{ClaimRequest, TaskCommands},
};

use tokio::sync::oneshot;

use super::{Echo, on, store};
use crate::{Context, Outcome, Status, StopReason, Task, WorkerSettings};

#[tokio::test]
async fn a_task_whose_claim_had_no_answer_goes_back_without_a_charge() {
    let store = Arc::new(store());
    let longhaul = on(&store).register(Echo).start().await.unwrap();
    let node_id = longhaul.sdk_client().engine.local_node().unwrap().id();
    let task = NewTask::new(
        "ann",
        "elsewhere",
        "free_default",
        Json::trusted("1".to_owned()),
    );

    let id = store.submit_task(task).await.unwrap().task_id;
    let queues = vec!["free_default".to_owned()];
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
        "the node hears nothing of it"
    );
    longhaul.stop().await;
    store.look(|tasks, _| {
        assert_eq!(
            (tasks[&id].status, tasks[&id].crash_count),
            (Status::Queued, 0)
        )
    });
}

/// Runs until it is told to stop, and tells why.
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
        let told = self.1.lock().unwrap().take();
        started.unwrap().send(()).unwrap();
        ctx.cancelled().await;
        told.unwrap().send(ctx.stop_reason()).unwrap();
        ctx.check()
    }
}

#[tokio::test]
async fn a_handler_can_tell_a_shutdown_from_a_cancel() {
    for reason in [StopReason::Cancelled, StopReason::Drain] {
        let (start, started) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let waits = Waits(Mutex::new(Some(start)), Mutex::new(Some(tell)));
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
            assert_eq!(told.await, Ok(Some(reason)));
            longhaul.stop().await;
        } else {
            longhaul.stop().await;
            assert_eq!(told.await, Ok(Some(reason)));
        }
    }
}
