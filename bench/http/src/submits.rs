//! Submits of 16 callers, over HTTP and directly into the store, alternating on one database.

use std::time::Instant;

use futures::future::try_join_all;
use longhaul::Longhaul;
use serde_json::json;

use crate::{
    client::Client,
    database::Backend,
    report::{Report, Wanted, percentile},
    served::{Noop, Served, payload},
};

const CALLERS: usize = 16;

pub(crate) async fn measure(
    backend: Backend,
    quick: bool,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (count, repetitions) = if quick { (4_000, 1) } else { (16_000, 3) };
    let database = backend.fresh().await?;
    let served = Served::idle(Longhaul::open(&database.url).await?).await?;
    let mut direct = Vec::new();
    let mut by_http = Vec::new();

    for _ in 0..repetitions {
        direct.push(into_the_store(&served, count).await?);
        by_http.push(over_http(&served, count).await?);
    }

    let direct = percentile(&mut direct, 50.0);
    let by_http = percentile(&mut by_http, 50.0);
    let ratio = by_http / direct;
    let shown = format!("{ratio:.2} ({by_http:.0}/s over HTTP, {direct:.0}/s into the store)");
    report.add(
        backend.name(),
        "submit, 16 clients, beside the store",
        ratio,
        &shown,
        Wanted::AtLeast(0.6),
    );

    served.stop().await
}

async fn into_the_store(served: &Served, count: usize) -> anyhow::Result<f64> {
    let started = Instant::now();
    try_join_all((0..CALLERS).map(|caller| async move {
        for id in (caller..count).step_by(CALLERS) {
            served.longhaul.submit::<Noop>(payload(id)).await?;
        }
        anyhow::Ok(())
    }))
    .await?;
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

async fn over_http(served: &Served, count: usize) -> anyhow::Result<f64> {
    let mut clients = Vec::new();
    for _ in 0..CALLERS {
        clients.push(Client::connect(served.address).await?);
    }

    let started = Instant::now();
    let callers = clients.into_iter().enumerate().map(|(caller, mut client)| {
        // Each caller is a task of its own, so that callers use all threads.
        tokio::spawn(async move {
            for id in (caller..count).step_by(CALLERS) {
                let body = json!({"taskType": "noop", "parameters": payload(id)}).to_string();
                client.submit(&body).await?;
            }
            anyhow::Ok(())
        })
    });
    for caller in try_join_all(callers).await? {
        caller?;
    }

    Ok(count as f64 / started.elapsed().as_secs_f64())
}
