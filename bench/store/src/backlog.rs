//! Claims at the head of a backlog, after a long history, and during an open snapshot.

use std::time::{Duration, Instant};

use longhaul_domain::contract::store::TaskCommands;
use longhaul_store::SqlStore;
use sqlx::{Connection as _, Executor as _};

use crate::{
    Plan,
    database::{Backend, safe},
    ours,
    report::{Report, median},
};

/// Rows of one statement of the history.
const SLICE: usize = 50_000;

pub(crate) async fn measure(
    backend: Backend,
    plan: &Plan,
    report: &mut Report,
) -> anyhow::Result<()> {
    let name = backend.name();
    let (waiting, ended): (&[usize], usize) = if plan.quick {
        (&[20_000, 100_000], 200_000)
    } else {
        (&[200_000, 1_000_000], 5_000_000)
    };
    let (store, url) = backend.store("backlog").await?;

    ours::submit_bulk(&store, 1_000).await?;
    let short = claims(&store, plan).await?;

    let mut submitted = 1_000;
    for wanted in waiting {
        ours::submit_bulk(&store, wanted - submitted).await?;
        submitted = *wanted;
        settle(backend, &url).await?;
        let rate = claims(&store, plan).await?;
        report.rate(
            name,
            format!("claims with {submitted} waiting, beside 1000"),
            rate,
            short,
            Some(0.7),
        );
    }

    store.close().await;
    drop(store);
    backend.remove("backlog").await?;

    let (store, url) = backend.store("history").await?;
    ours::submit_bulk(&store, 1_000).await?;
    make_history(backend, &url, ended).await?;
    settle(backend, &url).await?;
    let rate = claims(&store, plan).await?;

    report.rate(
        name,
        format!("claims after {ended} ended, beside none"),
        rate,
        short,
        Some(0.7),
    );

    store.close().await;
    drop(store);
    backend.remove("history").await
}

async fn claims(store: &SqlStore, plan: &Plan) -> anyhow::Result<f64> {
    let mut rates = Vec::new();
    for _ in 0..plan.repetitions {
        rates.push(ours::claim_rate(store, 50).await?);
    }
    Ok(median(rates))
}

/// Runs the database's own maintenance once.
async fn settle(backend: Backend, url: &str) -> anyhow::Result<()> {
    match backend {
        Backend::Sqlite => {}
        Backend::Postgres => {
            let mut connection = sqlx::PgConnection::connect(url).await?;
            connection.execute("VACUUM ANALYZE tasks").await?;
            connection.execute("CHECKPOINT").await?;
        }
        Backend::MySql => {
            let mut connection = sqlx::MySqlConnection::connect(url).await?;
            connection.execute("ANALYZE TABLE tasks").await?;
        }
    }

    Ok(())
}

/// Writes tasks that ended long ago, with plain SQL.
async fn make_history(backend: Backend, url: &str, ended: usize) -> anyhow::Result<()> {
    let columns = "id, owner, task_type, queue, priority, status, attempt, parameters, result, \
                   created_at, updated_at, due_at, started_at, last_attempt_at, finished_at";
    let values = "'u-1', 'bench', 'free_default', 1, 'COMPLETED', 1, \
                  '{\"pad\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}', \
                  '{\"ok\":true}', 1, 2, 1, 1, 1, 2";
    let started = Instant::now();

    for from in (0..ended).step_by(SLICE) {
        let to = (from + SLICE).min(ended) - 1;
        match backend {
            Backend::Sqlite => {
                let mut connection = sqlx::SqliteConnection::connect(url).await?;
                let numbers = format!(
                    "WITH RECURSIVE s(n) AS (SELECT {from} UNION ALL \
                     SELECT n + 1 FROM s WHERE n < {to})"
                );
                let statement = format!(
                    "INSERT INTO tasks ({columns}) {numbers} \
                     SELECT unhex(printf('0%031x', n)), {values} FROM s"
                );

                connection.execute(safe(statement)).await?;
            }
            Backend::Postgres => {
                let mut connection = sqlx::PgConnection::connect(url).await?;
                let statement = format!(
                    "INSERT INTO tasks ({columns}) \
                     SELECT lpad(to_hex(n), 32, '0')::uuid, {values} \
                     FROM generate_series({from}, {to}) n"
                );
                connection.execute(safe(statement)).await?;
            }
            Backend::MySql => {
                let mut connection = sqlx::MySqlConnection::connect(url).await?;
                let statement = format!(
                    "INSERT INTO tasks ({columns}, reserve) \
                     SELECT UNHEX(LPAD(HEX(seq), 32, '0')), {values}, NULL \
                     FROM seq_{from}_to_{to}"
                );
                connection.execute(safe(statement)).await?;
            }
        }
    }

    eprintln!(
        "{:9} {ended} ended tasks made in {:.0} s",
        backend.name(),
        started.elapsed().as_secs_f64()
    );

    Ok(())
}

/// Measures rounds of work on PostgreSQL for a minute during an open snapshot, and without one.
pub(crate) async fn measure_snapshot(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let (store, url) = Backend::Postgres.store("snapshot").await?;
    ours::submit_bulk(&store, 10_000).await?;
    let window = Duration::from_secs(if plan.quick { 3 } else { 10 });
    rounds(&store, window / 3).await?;
    let free = rounds(&store, window).await?;

    let mut holder = sqlx::PgConnection::connect(&url).await?;
    let mut snapshot = holder
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await?;

    snapshot.execute("SELECT count(*) FROM tasks").await?;
    let mut rates = Vec::new();
    for _ in 0..6 {
        rates.push(rounds(&store, window).await?);
    }

    snapshot.rollback().await?;
    let first = rates[0];
    let last = rates[rates.len() - 1];
    let seconds = window.as_secs() * 6;
    report.rate(
        "postgres",
        format!("rounds after {seconds} s of an open snapshot, beside none"),
        last,
        free,
        Some(0.5),
    );

    report.rate(
        "postgres",
        "the last sixth of that time, beside the first",
        last,
        first,
        Some(0.8),
    );

    store.close().await;
    Backend::Postgres.remove("snapshot").await
}

/// Claims, finishes and submits again for this time. Returns tasks per second.
async fn rounds(store: &SqlStore, window: Duration) -> anyhow::Result<f64> {
    let request = ours::node(store, ours::BATCH).await?;
    let started = Instant::now();
    let mut done = 0;

    while started.elapsed() < window {
        let tasks = store.claim_tasks(&request).await?;
        store.finish_tasks(&ours::reports(&tasks)).await?;
        store
            .submit_tasks((0..tasks.len()).map(ours::task).collect())
            .await?;
        done += tasks.len();
    }

    Ok(done as f64 / started.elapsed().as_secs_f64())
}
