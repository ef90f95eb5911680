//! Longhaul's adapter for the comparison of task systems: each call is a mode and a number.
//!
//! `reset` empties the store. `seq N`, `conc N` and `bulk N` submit N tasks and print their rate.
//! `latency N` submits N tasks 20 ms apart, each with its time. `worker` runs until it is killed.
//! Each task appends a byte, or its latency, to the file `DONE_FILE`. `pending` prints how many
//! tasks have not ended. `STORE` is `postgres` (`PG_URL`), `mysql` (`MARIADB_URL`) or `sqlite`
//! (`DB_FILE`), and `SLOTS` is the number of tasks that a worker runs at once. With `BROKER=amqp`
//! hints go over RabbitMQ (`AMQP_URL`).

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark's adapter reads its settings and prints its result"
)]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::future::try_join_all;
use longhaul::{Context, JsonSchema, Longhaul, Outcome, RabbitOptions, Submission, Task};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Executor as _};

const CLIENTS: usize = 16;
/// The broker's queue of tasks without a queue of their own.
const QUEUE: &str = "tasks.free_default";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments
        .next()
        .context("reset, seq N, conc N, bulk N, latency N, worker or pending")?;
    let count: usize = arguments.next().map_or(Ok(0), |text| text.parse())?;

    // A task of the runtime, like the handlers of a web server. `main` itself would be woken from
    // another thread for each answer.
    tokio::spawn(run(mode, count)).await?
}

async fn run(mode: String, count: usize) -> anyhow::Result<()> {
    let store = Store::from_environment()?;
    match mode.as_str() {
        "reset" => {
            store.remove().await?;
            store.open().await?.without_worker()?.stop().await;
            purge().await?;
        }
        "pending" => println!("{}", store.pending().await?),
        "worker" => work(&store).await?,
        "latency" => latency(&store, count).await?,
        "seq" => report(
            count,
            seq(&store.open().await?.without_worker()?, count).await?,
        ),
        "conc" => report(
            count,
            conc(&store.open().await?.without_worker()?, count).await?,
        ),
        "bulk" => report(
            count,
            bulk(&store.open().await?.without_worker()?, count).await?,
        ),
        other => anyhow::bail!("unknown mode {other}"),
    }

    Ok(())
}

/// A payload of about 200 bytes.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Payload {
    id: usize,
    /// The time of the submit in nanoseconds of the monotonic clock, or 0 without a measurement.
    t: u64,
    pad: String,
}

fn payload(id: usize, t: u64) -> Payload {
    Payload {
        id,
        t,
        pad: "x".repeat(160),
    }
}

struct Noop {
    done: File,
}

impl Task for Noop {
    const TYPE: &'static str = "noop";
    type Params = Payload;
    type Output = bool;

    async fn run(&self, ctx: Context<Self>) -> Outcome<bool> {
        let mut done = &self.done;
        match ctx.params.t {
            0 => done.write_all(b".")?,
            t => done.write_all(format!("{}\n", now() - t).as_bytes())?,
        }
        Ok(true)
    }
}

fn noop() -> anyhow::Result<Noop> {
    let path = std::env::var("DONE_FILE").context("DONE_FILE is not set")?;
    Ok(Noop {
        done: OpenOptions::new().append(true).create(true).open(path)?,
    })
}

fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

async fn worker(store: &Store) -> anyhow::Result<Longhaul> {
    let slots = std::env::var("SLOTS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2_000);

    Ok(store
        .open()
        .await?
        .register(noop()?)
        .slots(slots)
        .start()
        .await?)
}

async fn work(store: &Store) -> anyhow::Result<()> {
    let _longhaul = worker(store).await?;
    std::future::pending().await
}

async fn latency(store: &Store, count: usize) -> anyhow::Result<()> {
    // An embedded store has one process, so the submitter is also the worker.
    let longhaul = match store {
        Store::Sqlite(_) => worker(store).await?,
        Store::Postgres(_) | Store::MySql(_) => store.open().await?.without_worker()?,
    };

    for id in 0..count {
        longhaul.submit::<Noop>(payload(id, now())).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    tokio::time::sleep(Duration::from_secs(1)).await;
    longhaul.stop().await;
    Ok(())
}

async fn seq(longhaul: &Longhaul, count: usize) -> anyhow::Result<Duration> {
    let started = Instant::now();
    for id in 0..count {
        longhaul.submit::<Noop>(payload(id, 0)).await?;
    }
    Ok(started.elapsed())
}

async fn conc(longhaul: &Longhaul, count: usize) -> anyhow::Result<Duration> {
    let next = AtomicUsize::new(0);
    let started = Instant::now();
    try_join_all((0..CLIENTS).map(|_| async {
        loop {
            let id = next.fetch_add(1, Ordering::Relaxed);
            if id >= count {
                return anyhow::Ok(());
            }
            longhaul.submit::<Noop>(payload(id, 0)).await?;
        }
    }))
    .await?;
    Ok(started.elapsed())
}

async fn bulk(longhaul: &Longhaul, count: usize) -> anyhow::Result<Duration> {
    let started = Instant::now();
    for first in (0..count).step_by(1_000) {
        let tasks =
            (first..count.min(first + 1_000)).map(|id| longhaul.submit::<Noop>(payload(id, 0)));
        longhaul
            .submit_all(tasks.collect::<Vec<Submission<Noop>>>())
            .await?;
    }

    Ok(started.elapsed())
}

fn report(count: usize, took: Duration) {
    let secs = took.as_secs_f64();
    println!(
        "{{\"n\":{count},\"secs\":{secs},\"rate\":{}}}",
        count as f64 / secs
    );
}

/// The URL of the broker, if there is one.
fn amqp_url() -> anyhow::Result<Option<String>> {
    match std::env::var("BROKER").as_deref() {
        Err(_) => Ok(None),
        // Without a slash lapin uses the default virtual host.
        Ok("amqp") => Ok(Some(
            std::env::var("AMQP_URL")
                .context("AMQP_URL is not set")?
                .trim_end_matches('/')
                .to_owned(),
        )),
        Ok(other) => anyhow::bail!("BROKER is {other:?}; allowed: amqp, or none"),
    }
}

/// Deletes the hints of removed tasks.
async fn purge() -> anyhow::Result<()> {
    let Some(url) = amqp_url()? else {
        return Ok(());
    };
    let connection =
        lapin::Connection::connect(&url, lapin::ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;

    // The purge of a missing queue fails, and the server closes the channel.
    let _ = channel
        .queue_purge(QUEUE.into(), lapin::options::QueuePurgeOptions::default())
        .await;
    let _ = connection.close(200, "purged".into()).await;

    Ok(())
}

/// The database of the tasks.
enum Store {
    Postgres(String),
    MySql(String),
    Sqlite(String),
}

impl Store {
    fn from_environment() -> anyhow::Result<Self> {
        let named = |variable: &str| {
            std::env::var(variable).with_context(|| format!("{variable} is not set"))
        };
        Ok(match named("STORE")?.as_str() {
            "postgres" => Self::Postgres(named("PG_URL")?),
            "mysql" => Self::MySql(named("MARIADB_URL")?),
            "sqlite" => Self::Sqlite(named("DB_FILE")?),
            other => anyhow::bail!("STORE is {other:?}; allowed: postgres, mysql, sqlite"),
        })
    }

    async fn open(&self) -> anyhow::Result<longhaul::Builder> {
        let url = match self {
            Self::Postgres(url) | Self::MySql(url) => url.clone(),
            Self::Sqlite(file) => format!("sqlite://{file}"),
        };
        let builder = Longhaul::open(&url).await?;

        Ok(match amqp_url()? {
            Some(url) => builder.rabbitmq(&url, RabbitOptions::default()),
            None => builder,
        })
    }

    async fn remove(&self) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(file) => {
                for end in ["", "-wal", "-shm", ".lock"] {
                    // The file may not exist.
                    let _ = std::fs::remove_file(format!("{file}{end}"));
                }
            }
            Self::Postgres(url) => {
                let mut connection = sqlx::PgConnection::connect(url).await?;
                connection
                    .execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
                    .await?;
            }
            Self::MySql(url) => {
                let mut connection = sqlx::MySqlConnection::connect(url).await?;
                connection
                    .execute("DROP DATABASE bench; CREATE DATABASE bench")
                    .await?;
            }
        }

        Ok(())
    }

    async fn pending(&self) -> anyhow::Result<i64> {
        let query = "SELECT count(*) FROM tasks WHERE status <> 'COMPLETED'";
        Ok(match self {
            Self::Sqlite(file) => {
                let mut connection =
                    sqlx::SqliteConnection::connect(&format!("sqlite://{file}")).await?;
                sqlx::query_scalar(query).fetch_one(&mut connection).await?
            }
            Self::Postgres(url) => {
                let mut connection = sqlx::PgConnection::connect(url).await?;
                sqlx::query_scalar(query).fetch_one(&mut connection).await?
            }
            Self::MySql(url) => {
                let mut connection = sqlx::MySqlConnection::connect(url).await?;
                sqlx::query_scalar(query).fetch_one(&mut connection).await?
            }
        })
    }
}
