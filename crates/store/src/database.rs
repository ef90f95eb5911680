//! Runs operations on any of the databases, and retries them after a lost race.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_domain::StoreError;

#[cfg(feature = "mysql")]
use crate::mysql::MySqlDatabase;
#[cfg(feature = "postgres")]
use crate::postgres::PostgresDatabase;
use crate::{
    migrate::SchemaState,
    random,
    session::{Mode, Operation, Shared},
    sql_error::SqlError,
    sqlite::{self, SqliteDatabase},
};

/// How many times a transaction is tried before its caller gets the error.
const TRIES: u32 = 20;
/// How long the operations of one request are retried on a database server.
const RETRY_FOR: Duration = Duration::from_secs(30);
/// The same on SQLite, where each try may wait for another program's write lock. A client should
/// know after this time that the file is locked.
const RETRY_LOCKED_FOR: Duration = Duration::from_secs(10);
/// The longest pause between two tries, in milliseconds.
const PAUSE_MS: u64 = 100;

/// One of the databases that this program was built with.
#[derive(Debug, Clone)]
pub(crate) enum Database {
    Sqlite(SqliteDatabase),
    #[cfg(feature = "postgres")]
    Postgres(PostgresDatabase),
    #[cfg(feature = "mysql")]
    MySql(MySqlDatabase),
}

/// Runs the same expression on each kind of database.
macro_rules! on_each {
    ($one:expr, $database:ident => $answer:expr) => {
        match $one {
            Database::Sqlite($database) => $answer,
            #[cfg(feature = "postgres")]
            Database::Postgres($database) => $answer,
            #[cfg(feature = "mysql")]
            Database::MySql($database) => $answer,
        }
    };
}

impl Database {
    pub(crate) fn shared(&self) -> &Shared {
        on_each!(self, database => &database.shared)
    }

    pub(crate) const fn sqlite(&self) -> Option<&SqliteDatabase> {
        match self {
            Self::Sqlite(database) => Some(database),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
            #[cfg(feature = "mysql")]
            Self::MySql(_) => None,
        }
    }

    /// How many groups of single submits may commit at once. PostgreSQL needs one short statement.
    /// SQLite's thread finds the next group ready after each commit. MySQL needs four round trips,
    /// during which the server is idle.
    pub(crate) const fn commits_at_once(&self) -> usize {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => 1,
            Self::Sqlite(_) => 2,
            #[cfg(feature = "mysql")]
            Self::MySql(_) => 4,
        }
    }

    /// Until when the operations of a request that arrives now are retried.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now()
            + match self {
                Self::Sqlite(_) => RETRY_LOCKED_FOR,
                #[cfg(feature = "postgres")]
                Self::Postgres(_) => RETRY_FOR,
                #[cfg(feature = "mysql")]
                Self::MySql(_) => RETRY_FOR,
            }
    }

    /// Whether another try would end before the deadline.
    pub(crate) fn has_time(&self, deadline: Instant) -> bool {
        let longest_try = match self {
            Self::Sqlite(_) => sqlite::LOCK_WAIT,
            // A try that lost a race has ended long before its limit.
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Duration::ZERO,
            #[cfg(feature = "mysql")]
            Self::MySql(_) => Duration::ZERO,
        };
        Instant::now() + longest_try < deadline
    }

    /// Runs the operation in its own mode.
    pub(crate) async fn run<O: Operation>(
        &self,
        deadline: Instant,
        operation: O,
    ) -> Result<O::Output, StoreError> {
        let mode = operation.mode(self.shared());
        self.run_in(mode, deadline, operation).await
    }

    /// Runs the operation, again after each lost race until the deadline.
    pub(crate) async fn run_in<O: Operation>(
        &self,
        mode: Mode,
        deadline: Instant,
        operation: O,
    ) -> Result<O::Output, StoreError> {
        let operation = Arc::new(operation);
        let mut tries = 1;

        loop {
            let cause = match self.try_in_time(mode, &operation).await {
                Ok(output) => return Ok(output),
                Err(SqlError::Store(error)) => return Err(error),
                Err(SqlError::LostRace(cause)) => cause,
            };
            if tries >= TRIES || !self.has_time(deadline) {
                return Err(StoreError::Unavailable(cause));
            }

            tracing::debug!(tries, cause, "a transaction lost a race; retrying");
            tokio::time::sleep(random_pause(tries)).await;
            tries += 1;
        }
    }

    /// Limits the time of one try. A connection whose other end is gone never answers; the dropped
    /// operation closes it.
    async fn try_in_time<O: Operation>(
        &self,
        mode: Mode,
        operation: &Arc<O>,
    ) -> Result<O::Output, SqlError> {
        let Some(wait) = self.operation_wait() else {
            return self.try_once(mode, operation).await;
        };
        let late = |_| Err(StoreError::Unavailable(format!("no answer within {wait:?}")).into());
        tokio::time::timeout(wait, self.try_once(mode, operation))
            .await
            .unwrap_or_else(late)
    }

    /// How long a server may take. A file needs no limit.
    const fn operation_wait(&self) -> Option<Duration> {
        match self {
            Self::Sqlite(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => Some(database.operation_wait()),
            #[cfg(feature = "mysql")]
            Self::MySql(database) => Some(database.operation_wait()),
        }
    }

    async fn try_once<O: Operation>(
        &self,
        mode: Mode,
        operation: &Arc<O>,
    ) -> Result<O::Output, SqlError> {
        match (self, mode) {
            (Self::Sqlite(database), Mode::ReadOnly) => database.read(operation).await,
            (Self::Sqlite(database), Mode::Transaction | Mode::OneStatement) => {
                database.transact(operation).await
            }
            #[cfg(feature = "postgres")]
            (Self::Postgres(database), Mode::Transaction) => database.transact(&**operation).await,
            #[cfg(feature = "postgres")]
            (Self::Postgres(database), Mode::OneStatement | Mode::ReadOnly) => {
                database.once(&**operation).await
            }
            #[cfg(feature = "mysql")]
            (Self::MySql(database), Mode::ReadOnly) => database.read(&**operation).await,
            #[cfg(feature = "mysql")]
            (Self::MySql(database), Mode::Transaction | Mode::OneStatement) => {
                database.transact(&**operation).await
            }
        }
    }

    pub(crate) async fn migrate(&self) -> Result<(), StoreError> {
        on_each!(self, database => database.migrate().await)
    }

    pub(crate) async fn check_schema(&self) -> Result<(), StoreError> {
        on_each!(self, database => database.check_schema().await)
    }

    pub(crate) async fn schema(&self) -> Result<SchemaState, StoreError> {
        on_each!(self, database => database.schema().await)
    }

    pub(crate) async fn refused_statements(&self) -> Result<Vec<String>, StoreError> {
        on_each!(self, database => database.refused_statements().await).map_err(StoreError::from)
    }

    pub(crate) async fn durability(&self) -> Result<String, StoreError> {
        on_each!(self, database => database.durability().await).map_err(StoreError::from)
    }

    pub(crate) async fn close(&self) {
        on_each!(self, database => database.close().await);
    }
}

/// A random part of a limit that grows with each try, so that rivals do not collide again.
fn random_pause(tries: u32) -> Duration {
    let most_ms = PAUSE_MS.min(1 << tries.min(10));
    let micros = random::unit() * most_ms as f64 * 1_000.0;
    Duration::from_micros(micros as u64)
}
