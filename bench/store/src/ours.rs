//! The work through Longhaul's store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use longhaul_domain::{
    Json, NewTask, NodeId, QueueName, TaskRecord,
    contract::store::{AttemptEnd, AttemptReport, ClaimRequest, Leases, TaskCommands},
};
use longhaul_store::SqlStore;
use uuid::Uuid;

/// The tasks of one claim or finish.
pub(crate) const BATCH: usize = 100;
/// Concurrent loops of a drain, in one process.
pub(crate) const DRAINERS: usize = 4;

/// Parameters of about 200 bytes.
pub(crate) fn parameters(n: usize) -> String {
    format!("{{\"id\":{n},\"pad\":\"{}\"}}", "x".repeat(170))
}

#[expect(clippy::expect_used, reason = "the name is valid")]
fn queue() -> QueueName {
    QueueName::parse("free_default").expect("a valid name")
}

pub(crate) fn task(n: usize) -> NewTask {
    NewTask::new("u-1", "bench", queue(), Json::trusted(parameters(n)))
}

/// Submits `n` tasks one at a time from this many callers. Returns the rate per second.
pub(crate) async fn submit(store: &SqlStore, n: usize, callers: usize) -> anyhow::Result<f64> {
    let started = Instant::now();
    try_join_all((0..callers).map(|caller| {
        let store = store.clone();
        // Each caller is a task of its own, like the handlers of a server.
        tokio::spawn(async move {
            for index in 0..n / callers {
                store.submit_task(task(caller * n + index)).await?;
            }
            anyhow::Ok(())
        })
    }))
    .await?
    .into_iter()
    .collect::<anyhow::Result<Vec<()>>>()?;
    Ok(n as f64 / started.elapsed().as_secs_f64())
}

/// Submits `n` tasks, a thousand at a time. Returns the rate per second.
pub(crate) async fn submit_bulk(store: &SqlStore, n: usize) -> anyhow::Result<f64> {
    let started = Instant::now();
    for chunk in 0..n.div_ceil(1_000) {
        let size = 1_000.min(n - chunk * 1_000);
        store
            .submit_tasks((0..size).map(|index| task(chunk * 1_000 + index)).collect())
            .await?;
    }

    Ok(n as f64 / started.elapsed().as_secs_f64())
}

/// The id of a new node.
#[expect(
    clippy::disallowed_methods,
    reason = "the only function of this program that draws random numbers"
)]
pub(crate) fn node_id() -> Uuid {
    Uuid::from_u128(rand::random())
}

/// Registers a node. Returns its claim request.
pub(crate) async fn node(store: &SqlStore, limit: usize) -> anyhow::Result<ClaimRequest> {
    let node_id = NodeId(node_id());
    store
        .register_node(node_id, "bench", "localhost", None)
        .await?;

    Ok(ClaimRequest {
        node_id,
        host: "localhost".to_owned(),
        queues: vec![queue()],
        task_types: vec!["bench".to_owned()],
        limit,
    })
}

pub(crate) fn reports(tasks: &[TaskRecord]) -> Vec<AttemptReport> {
    let report = |task: &TaskRecord| {
        let result = Some(Json::trusted(r#"{"ok":true}"#.to_owned()));
        let lease = task.lease()?;
        Some(AttemptReport {
            lease,
            end: AttemptEnd::Completed {
                result,
                result_url: None,
            },
        })
    };

    tasks.iter().filter_map(report).collect()
}

/// Claims and finishes until no task is left. Returns the rate per second.
pub(crate) async fn drain(store: &SqlStore, n: usize) -> anyhow::Result<f64> {
    let request = Arc::new(node(store, BATCH).await?);
    let started = Instant::now();
    let drainers = (0..DRAINERS).map(|_| {
        let store = store.clone();
        let request = Arc::clone(&request);
        // The claims of one loop overlap with the finishes of another, as in a node.
        tokio::spawn(async move {
            let mut done = 0;
            loop {
                let claimed = store.claim_tasks(&request).await?;
                if claimed.is_empty() {
                    return anyhow::Ok(done);
                }
                done += claimed.len();
                store.finish_tasks(&reports(&claimed)).await?;
            }
        })
    });

    let done: usize = try_join_all(drainers)
        .await?
        .into_iter()
        .sum::<anyhow::Result<usize>>()?;
    anyhow::ensure!(done == n, "{done} of {n} tasks were drained");

    Ok(n as f64 / started.elapsed().as_secs_f64())
}

/// Claims at the head of a backlog of constant length. Returns the rate of the claims per second.
pub(crate) async fn claim_rate(store: &SqlStore, rounds: usize) -> anyhow::Result<f64> {
    let request = node(store, BATCH).await?;
    let mut spent = Duration::ZERO;
    let mut claimed = 0;

    for round in 0..rounds + 5 {
        let started = Instant::now();
        let tasks = store.claim_tasks(&request).await?;

        // The first rounds warm up caches and plans.
        if round >= 5 {
            spent += started.elapsed();
            claimed += tasks.len();
        }

        store.finish_tasks(&reports(&tasks)).await?;
        store
            .submit_tasks((0..tasks.len()).map(task).collect())
            .await?;
    }

    Ok(claimed as f64 / spent.as_secs_f64())
}
