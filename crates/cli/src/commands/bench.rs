//! `longhaul bench`: measures how many small tasks a server accepts and runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use longhaul_api::{
    Moment, SubmitRequest,
    client::{Client, ClientError},
};
use serde_json::json;
use tokio::task::JoinSet;

use crate::client::{self, Exit, Screen, ServerOptions};

/// Between two checks whether all tasks have ended.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Options of `longhaul bench`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "It submits real tasks of the type sample.echo, which `longhaul dev` has.\n\n\
    Examples:\n  longhaul bench\n  longhaul bench --tasks 20000 --clients 32 --json"
)]
pub struct Bench {
    /// How many tasks to submit.
    #[arg(
        long, short = 'n', default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    tasks: u32,
    /// How many clients submit at the same time, each on its own connection.
    #[arg(
        long, short = 'c', default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=256)
    )]
    clients: u32,
    /// Do not wait until the tasks have ended.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(bench: Bench) -> anyhow::Result<Exit> {
    let client = bench.server.client()?;
    let screen = bench.server.screen();

    // Finds the tasks of this run afterwards.
    let key = format!("bench-{}", Moment::now().0.as_micros());
    let bar = progress_bar(screen, bench.server.json, bench.tasks);
    let started = Instant::now();
    let latencies = submit_all(&client, &bench, &key, &bar).await;
    let submitted = started.elapsed();

    let ended = match (&latencies, bench.no_wait) {
        (Ok(_), false) => {
            bar.set_message("waiting until all have ended");
            wait_for_all(&client, &key).await?;
            Some(started.elapsed())
        }
        (Ok(_), true) | (Err(_), _) => None,
    };

    bar.finish_and_clear();
    report(screen, &bench, &latencies?, submitted, ended)?;
    Ok(Exit::Done)
}

async fn submit_all(
    client: &Client,
    bench: &Bench,
    key: &str,
    bar: &ProgressBar,
) -> Result<Vec<Duration>, ClientError> {
    let next = Arc::new(AtomicU32::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..bench.clients {
        // The clients share one counter, so that a slow one does not leave tasks for the end.
        clients.spawn(submit_some(
            client.clone(),
            bench.tasks,
            Arc::clone(&next),
            key.to_owned(),
            bar.clone(),
        ));
    }

    let mut all = Vec::new();
    while let Some(joined) = clients.join_next().await {
        // The result of a client that panicked would not be a measurement.
        let one = joined.map_err(|error| ClientError::Unsendable(error.to_string()))?;
        all.extend(one?);
    }

    all.sort_unstable();
    Ok(all)
}

/// Submits until all clients together have submitted `tasks`. Returns the latencies of its own.
async fn submit_some(
    client: Client,
    tasks: u32,
    next: Arc<AtomicU32>,
    key: String,
    bar: ProgressBar,
) -> Result<Vec<Duration>, ClientError> {
    let mut latencies = Vec::new();

    while next.fetch_add(1, Ordering::Relaxed) < tasks {
        let request = SubmitRequest {
            task_type: "sample.echo".to_owned(),
            task_key: Some(key.clone()),
            ..SubmitRequest::default()
        };
        let sent = Instant::now();
        client.submit(&request, None).await?;

        latencies.push(sent.elapsed());
        bar.inc(1);
    }

    Ok(latencies)
}

async fn wait_for_all(client: &Client, key: &str) -> Result<(), ClientError> {
    let open = [
        ("taskKey", key.to_owned()),
        ("status", "QUEUED,RUNNING,RETRYING".to_owned()),
        ("size", "1".to_owned()),
    ];
    while !client.list(&open).await?.value.items.is_empty() {
        tokio::time::sleep(CHECK_EVERY).await;
    }

    Ok(())
}

fn report(
    screen: Screen,
    bench: &Bench,
    latencies: &[Duration],
    submitted: Duration,
    ended: Option<Duration>,
) -> anyhow::Result<()> {
    let rate = |time: Duration| (f64::from(bench.tasks) / time.as_secs_f64()).round();
    let percentiles = [50, 95, 99, 100].map(|percent| percentile(latencies, percent));
    let [p50, p95, p99, max] = percentiles.map(ms);
    let tasks = bench.tasks;
    let clients = bench.clients;

    if bench.server.json {
        let report = json!({
            "tasks": tasks, "clients": clients,
            "submit": { "ms": ms(submitted), "perSecond": rate(submitted),
                "p50Ms": p50, "p95Ms": p95, "p99Ms": p99, "maxMs": max },
            "run": ended.map(|time| json!({ "ms": ms(time), "perSecond": rate(time) })),
        });
        return Ok(screen.line(report)?);
    }

    let throughput = |time: Duration| {
        let seconds = time.as_secs_f64();
        format!("{tasks} tasks in {seconds:.2} s: {:.0} tasks/s", rate(time))
    };
    let submit = format!("{} by {clients} clients", throughput(submitted));
    let latency = format!("p50 {p50} ms   p95 {p95} ms   p99 {p99} ms   max {max} ms");
    let run = ended.map(throughput).unwrap_or_default();

    let rows = [
        ("submit", submit),
        ("latency", latency),
        ("submit and run", run),
    ];
    Ok(screen.show(client::facts(screen, rows))?)
}

/// Milliseconds with two digits behind the point.
fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 100_000.0).round() / 100.0
}

/// `sorted` holds at least one time.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let index = (sorted.len() * percent / 100).min(sorted.len() - 1);
    sorted.get(index).copied().unwrap_or_default()
}

fn progress_bar(screen: Screen, json: bool, tasks: u32) -> ProgressBar {
    if !screen.is_terminal || json {
        return ProgressBar::hidden();
    }

    let template = "[{bar:30}] {pos}/{len} {per_sec} {wide_msg}";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());

    ProgressBar::new(tasks.into()).with_style(style.progress_chars("━╸─"))
}
