//! The same work without Longhaul's schema: one minimal table with plain statements, and no
//! history.

use std::sync::Arc;
use std::time::Instant;

use futures::future::try_join_all;
use sqlx::{Connection as _, Executor as _, Row as _};
use tokio::sync::Mutex;

use crate::{
    database::{Backend, safe},
    ours::{BATCH, DRAINERS, parameters},
};

/// A database with one table of jobs.
#[derive(Debug, Clone)]
pub(crate) enum Bare {
    /// One connection, because SQLite has one writer.
    Sqlite(Arc<Mutex<sqlx::SqliteConnection>>),
    Postgres(sqlx::PgPool),
    MySql(sqlx::MySqlPool),
}

impl Bare {
    pub(crate) async fn open(backend: Backend, name: &str) -> anyhow::Result<Self> {
        let url = backend.fresh(name).await?;
        match backend {
            Backend::Sqlite => {
                let path = url.trim_start_matches("sqlite://");
                let options = sqlx::sqlite::SqliteConnectOptions::new()
                    .filename(path)
                    .create_if_missing(true)
                    .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
                    .synchronous(sqlx::sqlite::SqliteSynchronous::Full)
                    .pragma("cache_size", "-65536");

                let mut connection = sqlx::SqliteConnection::connect_with(&options).await?;
                connection
                    .execute(
                        "CREATE TABLE jobs (id INTEGER PRIMARY KEY, state INT NOT NULL DEFAULT 0, \
                         attempts INT NOT NULL DEFAULT 0, \
                         run_at INT NOT NULL DEFAULT (unixepoch()), \
                         locked_at INT, done_at INT, payload TEXT NOT NULL); \
                         CREATE INDEX jobs_claim ON jobs (run_at, id) WHERE state = 0",
                    )
                    .await?;
                Ok(Self::Sqlite(Arc::new(Mutex::new(connection))))
            }
            Backend::Postgres => {
                let pool = sqlx::postgres::PgPoolOptions::new()
                    .max_connections(20)
                    .test_before_acquire(false)
                    .connect(&url)
                    .await?;
                pool.execute(
                    "CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
                     state smallint NOT NULL DEFAULT 0, attempts smallint NOT NULL DEFAULT 0, \
                     run_at timestamptz NOT NULL DEFAULT now(), \
                     locked_at timestamptz, done_at timestamptz, payload text NOT NULL); CREATE INDEX ON jobs (run_at, id) WHERE state = 0",
                )
                .await?;
                Ok(Self::Postgres(pool))
            }
            Backend::MySql => {
                let pool = sqlx::mysql::MySqlPoolOptions::new()
                    .max_connections(20)
                    .test_before_acquire(false)
                    .after_connect(|connection, _| {
                        Box::pin(async move {
                            connection
                                .execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                                .await?;
                            Ok(())
                        })
                    })
                    .connect(&url)
                    .await?;

                pool.execute(
                    "CREATE TABLE jobs (id BIGINT AUTO_INCREMENT PRIMARY KEY, \
                     state SMALLINT NOT NULL DEFAULT 0, attempts SMALLINT NOT NULL DEFAULT 0, \
                     run_at DATETIME(6) NOT NULL DEFAULT NOW(6), \
                     locked_at DATETIME(6), done_at DATETIME(6), payload LONGTEXT NOT NULL, \
                     KEY jobs_claim (state, run_at, id))",
                )
                .await?;
                Ok(Self::MySql(pool))
            }
        }
    }

    async fn insert(&self, n: usize) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(writer) => {
                let mut writer = writer.lock().await;
                sqlx::query("INSERT INTO jobs (payload) VALUES (?)")
                    .bind(parameters(n))
                    .execute(&mut *writer)
                    .await?;
            }
            Self::Postgres(pool) => {
                sqlx::query("INSERT INTO jobs (payload) VALUES ($1)")
                    .bind(parameters(n))
                    .execute(pool)
                    .await?;
            }
            Self::MySql(pool) => {
                sqlx::query("INSERT INTO jobs (payload) VALUES (?)")
                    .bind(parameters(n))
                    .execute(pool)
                    .await?;
            }
        }

        Ok(())
    }

    /// Inserts one row at a time from this many callers. Returns the rate per second.
    pub(crate) async fn submit(&self, n: usize, callers: usize) -> anyhow::Result<f64> {
        let started = Instant::now();
        let inserters = (0..callers).map(|caller| {
            let bare = self.clone();
            // Each caller is a task of its own, as in `ours`.
            tokio::spawn(async move {
                for index in 0..n / callers {
                    bare.insert(caller * n + index).await?;
                }
                anyhow::Ok(())
            })
        });

        try_join_all(inserters)
            .await?
            .into_iter()
            .collect::<anyhow::Result<Vec<()>>>()?;

        Ok(n as f64 / started.elapsed().as_secs_f64())
    }

    /// Inserts a thousand rows at a time. Returns the rate per second.
    pub(crate) async fn submit_bulk(&self, n: usize) -> anyhow::Result<f64> {
        let started = Instant::now();
        for chunk in 0..n / 1_000 {
            let payloads: Vec<String> = (0..1_000)
                .map(|index| parameters(chunk * 1_000 + index))
                .collect();
            let rows = "(?), ".repeat(payloads.len());
            let statement = safe(format!(
                "INSERT INTO jobs (payload) VALUES {}",
                rows.trim_end_matches(", ")
            ));

            match self {
                Self::Sqlite(writer) => {
                    let query = payloads
                        .into_iter()
                        .fold(sqlx::query(statement), |query, payload| query.bind(payload));
                    query.execute(&mut *writer.lock().await).await?;
                }
                Self::Postgres(pool) => {
                    let query = sqlx::query(
                        "INSERT INTO jobs (payload) SELECT p FROM unnest($1::text[]) AS p",
                    );
                    query.bind(payloads).execute(pool).await?;
                }
                Self::MySql(pool) => {
                    let query = payloads
                        .into_iter()
                        .fold(sqlx::query(statement), |query, payload| query.bind(payload));
                    query.execute(pool).await?;
                }
            }
        }

        Ok(n as f64 / started.elapsed().as_secs_f64())
    }

    /// Claims and completes a batch. Returns its size.
    async fn round(&self) -> anyhow::Result<usize> {
        match self {
            Self::Sqlite(writer) => round_sqlite(&mut *writer.lock().await).await,
            Self::Postgres(pool) => round_postgres(pool).await,
            Self::MySql(pool) => round_mysql(pool).await,
        }
    }

    /// Claims and completes until no job is left. Returns the rate per second.
    pub(crate) async fn drain(&self, n: usize) -> anyhow::Result<f64> {
        let started = Instant::now();
        let drainers = (0..DRAINERS).map(|_| {
            let bare = self.clone();
            // Loops as in `ours`.
            tokio::spawn(async move {
                let mut done = 0;
                loop {
                    match bare.round().await? {
                        0 => return anyhow::Ok(done),
                        some => done += some,
                    }
                }
            })
        });

        let done: usize = try_join_all(drainers)
            .await?
            .into_iter()
            .sum::<anyhow::Result<usize>>()?;
        anyhow::ensure!(done == n, "{done} of {n} jobs were drained");

        Ok(n as f64 / started.elapsed().as_secs_f64())
    }
}

async fn round_sqlite(writer: &mut sqlx::SqliteConnection) -> anyhow::Result<usize> {
    let claim = "UPDATE jobs SET state = 1, attempts = attempts + 1, locked_at = unixepoch() \
                 WHERE id IN (SELECT id FROM jobs WHERE state = 0 AND run_at <= unixepoch() \
                 ORDER BY run_at, id LIMIT ?) RETURNING id, payload";
    let rows = sqlx::query(claim)
        .bind(BATCH as i64)
        .fetch_all(&mut *writer)
        .await?;

    let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    let ids = serde_json::to_string(&ids)?;
    let complete = "UPDATE jobs SET state = 2, done_at = unixepoch() \
                    WHERE id IN (SELECT value FROM json_each(?))";
    sqlx::query(complete)
        .bind(ids)
        .execute(&mut *writer)
        .await?;

    Ok(rows.len())
}

async fn round_postgres(pool: &sqlx::PgPool) -> anyhow::Result<usize> {
    let claim = "UPDATE jobs SET state = 1, attempts = attempts + 1, locked_at = now() \
                 WHERE id IN (SELECT id FROM jobs WHERE state = 0 AND run_at <= now() \
                 ORDER BY run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING id, payload";
    let rows = sqlx::query(claim)
        .bind(BATCH as i64)
        .fetch_all(pool)
        .await?;

    let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    let complete = "UPDATE jobs SET state = 2, done_at = now() WHERE id = ANY($1)";
    sqlx::query(complete).bind(ids).execute(pool).await?;
    Ok(rows.len())
}

async fn round_mysql(pool: &sqlx::MySqlPool) -> anyhow::Result<usize> {
    let mut transaction = pool.begin().await?;
    let claim = "SELECT id, payload FROM jobs WHERE state = 0 AND run_at <= NOW(6) \
                 ORDER BY run_at, id LIMIT ? FOR UPDATE SKIP LOCKED";
    let rows = sqlx::query(claim)
        .bind(BATCH as i64)
        .fetch_all(&mut *transaction)
        .await?;

    let ids = rows.iter().map(|row| row.get::<i64, _>(0).to_string());
    let ids: Vec<String> = ids.collect();
    if ids.is_empty() {
        return Ok(0);
    }

    let ids = ids.join(",");
    let lock = format!(
        "UPDATE jobs SET state = 1, attempts = attempts + 1, locked_at = NOW(6) \
         WHERE id IN ({ids})"
    );
    sqlx::raw_sql(safe(lock)).execute(&mut *transaction).await?;
    transaction.commit().await?;

    let complete = format!("UPDATE jobs SET state = 2, done_at = NOW(6) WHERE id IN ({ids})");
    sqlx::raw_sql(safe(complete)).execute(pool).await?;
    Ok(rows.len())
}
