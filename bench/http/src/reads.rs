//! The latency of reads among a million tasks: single tasks at a steady rate, and pages of lists.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use longhaul::{Longhaul, Submission};
use tokio::time::MissedTickBehavior;

use crate::{
    client::Client,
    database::Backend,
    report::{Report, Wanted, percentile},
    served::{Noop, Served, payload},
};

const CLIENTS: usize = 10;
/// Requests per second of all clients together.
const RATE: u32 = 1_000;
/// The number of owners. The client is one of them.
const OWNERS: usize = 20;
const PAGES: [&str; 5] = [
    "/api/tasks?size=50",
    "/api/tasks?size=50&sort=createdAt",
    "/api/tasks?size=50&status=QUEUED",
    "/api/tasks?size=50&status=QUEUED&taskType=noop",
    "/api/tasks?size=50&status=FAILED",
];

pub(crate) async fn measure(
    backend: Backend,
    quick: bool,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (tasks, seconds) = if quick { (50_000, 3) } else { (1_000_000, 10) };
    let database = backend.fresh().await?;
    let served = Served::idle(Longhaul::open(&database.url).await?).await?;
    let ids = fill(&served, tasks).await?;

    let mut took = one_by_one(&served, &ids, Duration::from_secs(seconds)).await?;
    let median = percentile(&mut took, 50.0);
    let late = percentile(&mut took, 99.0);
    let shown = format!("{late:.1} (median {median:.1}, {} requests)", took.len());

    report.add(
        backend.name(),
        "GET /api/tasks/{id} at 1,000/s, p99 in ms",
        late,
        &shown,
        Wanted::AtMost(5.0),
    );

    let mut took = lists(&served).await?;
    let median = percentile(&mut took, 50.0);
    let late = percentile(&mut took, 99.0);
    let shown = format!("{late:.1} (median {median:.1}, {} pages)", took.len());
    let what = format!("a page of a list among {tasks} tasks, p99 in ms");

    report.add(backend.name(), &what, late, &shown, Wanted::AtMost(50.0));
    served.stop().await
}

/// Submits this many tasks. Returns the ids of those that the client owns.
async fn fill(served: &Served, tasks: usize) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::new();
    for first in (0..tasks).step_by(1_000) {
        let batch: Vec<Submission<Noop>> = (first..first + 1_000)
            .map(|id| {
                let owner = if id % OWNERS == 0 {
                    "default".to_owned()
                } else {
                    format!("u-{}", id % OWNERS)
                };
                served.longhaul.submit::<Noop>(payload(id)).owner(&owner)
            })
            .collect();

        let handles = served.longhaul.submit_all(batch).await?;
        ids.extend(
            handles
                .iter()
                .step_by(OWNERS)
                .map(|handle| handle.id().0.to_string()),
        );
    }

    Ok(ids)
}

/// Sends requests at a steady rate. The latency of a late request counts from its scheduled time.
async fn one_by_one(served: &Served, ids: &[String], span: Duration) -> anyhow::Result<Vec<f64>> {
    let between = Duration::from_secs(1) * CLIENTS as u32 / RATE;
    let asked = try_join_all((0..CLIENTS).map(|client| async move {
        let mut connection = Client::connect(served.address).await?;
        let first = tokio::time::Instant::now() + between * client as u32 / CLIENTS as u32;
        let mut ticks = tokio::time::interval_at(first, between);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);

        let mut took = Vec::new();
        let mut next = client * 7_919;
        while first.elapsed() < span {
            let due = ticks.tick().await;
            connection
                .get(&format!("/api/tasks/{}", ids[next % ids.len()]))
                .await?;
            took.push(due.elapsed().as_secs_f64() * 1_000.0);
            next += 104_729;
        }
        anyhow::Ok(took)
    }))
    .await?;
    Ok(asked.concat())
}

async fn lists(served: &Served) -> anyhow::Result<Vec<f64>> {
    let mut connection = Client::connect(served.address).await?;
    let mut took = Vec::new();
    for _ in 0..100 {
        for page in PAGES {
            let started = Instant::now();
            connection.get(page).await?;
            took.push(started.elapsed().as_secs_f64() * 1_000.0);
        }
    }

    Ok(took)
}
