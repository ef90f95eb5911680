//! The store's own statements on the store's schema, sent by the plain drivers.
//!
//! There is no code of the store around them: no typed tasks, shared commits, decisions or retries.
//! A loop reads only the columns that its next statement needs. Parameters are as long as the
//! store's, so that the database does the same work and a ratio is the cost of our code alone.

mod mysql;
mod postgres;
mod sqlite;
mod task_counts;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use futures::future::try_join_all;
use longhaul_store::DatabaseKind;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::{
    database::Backend,
    ours::{BATCH, DRAINERS, node_id, parameters},
};

/// The most concurrent callers. On a server each has its own connection.
const CALLERS: usize = 16;
/// Tasks of one submit in bulk.
const BULK: usize = 1_000;

// The fields of every task of this program; see `ours::task`.
const OWNER: &str = "u-1";
const TASK_TYPE: &str = "bench";
const QUEUE: &str = "free_default";
const PRIORITY: i64 = 1;
const MAX_ATTEMPTS: i64 = 5;
const HOST: &str = "localhost";
const RESULT: &str = r#"{"ok":true}"#;
// The same fields as JSON.
const QUEUES: &str = r#"["free_default"]"#;
const TASK_TYPES: &str = r#"["bench"]"#;

// Indexes of the columns in `task_columns.sql`. If they change, no task is finished and the run
// fails.
const ID: usize = 0;
const ATTEMPT: usize = 10;
const DUE_AT: usize = 18;
const LEASE_TOKEN: usize = 24;

/// A database with the store's schema, without the store.
#[derive(Debug)]
pub(crate) struct Same {
    callers: Vec<Arc<Mutex<Connection>>>,
    ids: Arc<Ids>,
}

/// The loop of one database.
#[derive(Debug)]
enum Connection {
    Sqlite(sqlite::Loop),
    Postgres(postgres::Loop),
    MySql(mysql::Loop),
}

/// A task to insert.
struct Row {
    id: Uuid,
    parameters: String,
}

/// What a finish needs from a claim.
struct Claimed {
    id: Uuid,
    attempt: i64,
    token: Uuid,
}

impl Same {
    /// Lets the store create the schema, then connects without the store.
    pub(crate) async fn open(backend: Backend, name: &str) -> anyhow::Result<(Self, String)> {
        let (store, url) = backend.store(name).await?;
        store.close().await;
        drop(store);
        let node = node_id();

        let callers = match backend {
            // SQLite has one writer, so all callers share its lock.
            Backend::Sqlite => {
                let only = sqlite::Loop::open(&url, node)?;
                let only = Arc::new(Mutex::new(Connection::Sqlite(only)));
                vec![only; CALLERS]
            }
            Backend::Postgres => {
                let loops = postgres::Loop::open(&url, node, CALLERS).await?;
                loops
                    .into_iter()
                    .map(|one| Arc::new(Mutex::new(Connection::Postgres(one))))
                    .collect()
            }
            Backend::MySql => {
                let loops = mysql::Loop::open(&url, node, CALLERS).await?;
                loops
                    .into_iter()
                    .map(|one| Arc::new(Mutex::new(Connection::MySql(one))))
                    .collect()
            }
        };

        Ok((
            Self {
                callers,
                ids: Arc::new(Ids::starting_now()),
            },
            url,
        ))
    }

    /// Inserts one task at a time from this many callers. Returns the rate per second.
    pub(crate) async fn submit(&self, n: usize, callers: usize) -> anyhow::Result<f64> {
        let started = Instant::now();
        let inserters =
            self.callers
                .iter()
                .take(callers)
                .enumerate()
                .map(|(caller, connection)| {
                    let connection = Arc::clone(connection);
                    let ids = Arc::clone(&self.ids);
                    // Each caller is a task of its own, as in `ours`.
                    tokio::spawn(async move {
                        for index in 0..n / callers {
                            let rows = [Row {
                                id: ids.next(),
                                parameters: parameters(caller * n + index),
                            }];
                            connection.lock().await.insert(&rows).await?;
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

    /// Inserts a thousand tasks at a time. Returns the rate per second.
    pub(crate) async fn submit_bulk(&self, n: usize) -> anyhow::Result<f64> {
        let started = Instant::now();
        let connection = self.callers.first().context("a connection")?;
        for chunk in 0..n / BULK {
            let row = |index| Row {
                id: self.ids.next(),
                parameters: parameters(chunk * BULK + index),
            };
            let rows: Vec<Row> = (0..BULK).map(row).collect();
            connection.lock().await.insert(&rows).await?;
        }

        Ok(n as f64 / started.elapsed().as_secs_f64())
    }

    /// Claims and finishes until no task is left. Returns the rate per second.
    pub(crate) async fn drain(&self, n: usize) -> anyhow::Result<f64> {
        let started = Instant::now();
        let drainers = self.callers.iter().take(DRAINERS).map(|connection| {
            let connection = Arc::clone(connection);
            // Loops as in `ours`.
            tokio::spawn(async move {
                let mut done = 0;
                loop {
                    let claimed = connection.lock().await.claim().await?;
                    if claimed.is_empty() {
                        return anyhow::Ok(done);
                    }

                    let ended = connection.lock().await.finish(&claimed).await?;
                    anyhow::ensure!(
                        ended == claimed.len(),
                        "{ended} of {} tasks were finished",
                        claimed.len()
                    );
                    done += ended;
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
}

impl Connection {
    /// Writes the rows and their counts in one transaction.
    async fn insert(&mut self, rows: &[Row]) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(own) => own.insert(rows),
            Self::Postgres(own) => own.insert(rows).await,
            Self::MySql(own) => own.insert(rows).await,
        }
    }

    /// Claims a batch.
    async fn claim(&mut self) -> anyhow::Result<Vec<Claimed>> {
        match self {
            Self::Sqlite(own) => own.claim(),
            Self::Postgres(own) => own.claim().await,
            Self::MySql(own) => own.claim().await,
        }
    }

    /// Finishes a batch. Returns how many tasks ended.
    async fn finish(&mut self, claimed: &[Claimed]) -> anyhow::Result<usize> {
        match self {
            Self::Sqlite(own) => own.finish(claimed),
            Self::Postgres(own) => own.finish(claimed).await,
            Self::MySql(own) => own.finish(claimed).await,
        }
    }
}

/// Growing ids like the store's, because they decide where a row goes in an index.
#[derive(Debug)]
struct Ids {
    start: u128,
    next: AtomicU64,
}

impl Ids {
    fn starting_now() -> Self {
        let millis = (micros_now() / 1_000) as u128;
        Self {
            start: (millis << 80) | (0x7 << 76) | (0b10 << 62),
            next: AtomicU64::new(1),
        }
    }

    fn next(&self) -> Uuid {
        Uuid::from_u128(self.start | u128::from(self.next.fetch_add(1, Ordering::Relaxed)))
    }
}

/// The time for SQLite's statements and for ids.
#[expect(
    clippy::disallowed_methods,
    reason = "the comparison does without the store, and so without its clock"
)]
fn micros_now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// The text of a statement that exists once.
fn statement(kind: DatabaseKind, name: &str) -> anyhow::Result<&'static str> {
    let mut texts = statements(kind, name).into_iter();
    texts
        .next()
        .with_context(|| format!("the store has no statement {name}"))
}

/// All texts of this name, largest first.
fn statements(kind: DatabaseKind, name: &str) -> Vec<&'static str> {
    longhaul_store::statements(kind)
        .into_iter()
        .filter(|(its, _)| *its == name)
        .map(|(_, text)| text)
        .collect()
}

/// The texts of a statement for several rows, each with its number of rows, largest first.
type Sizes = Vec<(usize, &'static str)>;

/// The sizes of a statement with this many parameters of its own and for each row.
fn sizes(kind: DatabaseKind, name: &str, own: usize, of_row: usize) -> Sizes {
    let sized = |text: &'static str| ((text.matches('?').count() - own) / of_row, text);
    statements(kind, name).into_iter().map(sized).collect()
}

/// Splits `rows` into the available sizes.
fn cut<'a, T>(sizes: &Sizes, mut rows: &'a [T]) -> Vec<(&'static str, &'a [T])> {
    let mut chunks = Vec::new();
    for (size, text) in sizes {
        while rows.len() >= *size {
            let (chunk, rest) = rows.split_at(*size);
            chunks.push((*text, chunk));
            rows = rest;
        }
    }

    chunks
}

/// The same, but the last chunk is filled up with its last row, as the store does where a repeated
/// row does no harm.
fn fill<'a, T>(sizes: &Sizes, mut rows: &'a [T]) -> Vec<(&'static str, Vec<&'a T>)> {
    let mut chunks = Vec::new();
    for (size, text) in sizes {
        while rows.len() * 2 > *size {
            let (chunk, rest) = rows.split_at(rows.len().min(*size));
            let mut chunk: Vec<&T> = chunk.iter().collect();
            chunk.resize(*size, chunk[chunk.len() - 1]);
            chunks.push((*text, chunk));
            rows = rest;
        }
    }

    chunks
}
