//! `longhaul bench`: how many small tasks a server takes and runs.

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

use crate::client::{self, Ending, Screen, ServerOptions};

/// Between two looks whether all have ended.
const LOOK: Duration = Duration::from_millis(50);

/// What `bench` can be told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "It makes real tasks of the type sample.echo, which `longhaul dev` has.\n\n\
    Examples:\n  longhaul bench\n  longhaul bench --tasks 20000 --clients 32 --json"
)]
pub struct Bench {
    /// How many tasks.
    #[arg(long, short = 'n', default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tasks: u32,
    /// How many clients submit at the same time, each on a connection of its own.
    #[arg(long, short = 'c', default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    clients: u32,
    /// Do not wait until the tasks have been run.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(bench: Bench) -> anyhow::Result<Ending> {
    let (client, screen) = (bench.server.client()?, bench.server.screen());
    // The tasks are known by it afterwards.
    let key = format!("bench-{}", Moment::now().0.as_micros());
    let bar = progress_bar(screen, bench.server.json, bench.tasks);
    let started = Instant::now();
    let latencies = submit_all(&client, &bench, &key, &bar).await;
    let submitted = started.elapsed();
    let ended = match (&latencies, bench.no_wait) {
        (Ok(_), false) => {
            bar.set_message("waiting until all have been run");
            wait_for_all(&client, &key).await?;
            Some(started.elapsed())
        }
        (Ok(_), true) | (Err(_), _) => None,
    };
    bar.finish_and_clear();
    report(screen, &bench, &latencies?, submitted, ended)?;
    Ok(Ending::Done)
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
        let (client, next, bar, key, tasks) = (
            client.clone(),
            Arc::clone(&next),
            bar.clone(),
            key.to_owned(),
            bench.tasks,
        );
        clients.spawn(async move {
            let mut latencies = Vec::new();
            while next.fetch_add(1, Ordering::Relaxed) < tasks {
                let (task_type, task_key) = ("sample.echo".to_owned(), Some(key.clone()));
                let order = SubmitRequest {
                    task_type,
                    task_key,
                    ..SubmitRequest::default()
                };
                let asked = Instant::now();
                client.submit(&order, None).await?;
                latencies.push(asked.elapsed());
                bar.inc(1);
            }
            Ok::<_, ClientError>(latencies)
        });
    }
    let mut all = Vec::new();
    while let Some(joined) = clients.join_next().await {
        // A client that panics is not a measurement.
        let one = joined.map_err(|error| ClientError::Unsendable(error.to_string()))?;
        all.extend(one?);
    }
    all.sort_unstable();
    Ok(all)
}

async fn wait_for_all(client: &Client, key: &str) -> Result<(), ClientError> {
    let open = [
        ("taskKey", key.to_owned()),
        ("status", "QUEUED,RUNNING,RETRYING".to_owned()),
        ("size", "1".to_owned()),
    ];
    while !client.list(&open).await?.value.items.is_empty() {
        tokio::time::sleep(LOOK).await;
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
    let ms = |time: Duration| (time.as_secs_f64() * 100_000.0).round() / 100.0;
    let at = |percent: usize| {
        ms(latencies
            .get((latencies.len() * percent / 100).min(latencies.len() - 1))
            .copied()
            .unwrap_or_default())
    };
    let [p50, p95, p99, max] = [50, 95, 99, 100].map(at);
    let (tasks, clients) = (bench.tasks, bench.clients);
    if bench.server.json {
        let told = json!({
            "tasks": tasks, "clients": clients,
            "submit": { "ms": ms(submitted), "perSecond": rate(submitted),
                "p50Ms": p50, "p95Ms": p95, "p99Ms": p99, "maxMs": max },
            "run": ended.map(|time| json!({ "ms": ms(time), "perSecond": rate(time) })),
        });
        return Ok(screen.line(told)?);
    }
    let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
    let run = ended.map(|time| {
        format!(
            "{tasks} tasks in {}: {:.0} tasks/s",
            seconds(time),
            rate(time)
        )
    });
    let table = client::facts(
        screen,
        [
            (
                "submit",
                format!(
                    "{tasks} tasks in {}: {:.0} tasks/s by {clients} clients",
                    seconds(submitted),
                    rate(submitted)
                ),
            ),
            (
                "latency",
                format!("p50 {p50} ms   p95 {p95} ms   p99 {p99} ms   max {max} ms"),
            ),
            ("submit and run", run.unwrap_or_default()),
        ],
    );
    Ok(screen.show(table)?)
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
