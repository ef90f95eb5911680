//! Whichever database a store is on: how an operation is run there, and run again when a race was lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_domain::StoreError;

#[cfg(feature = "mysql")]
use crate::mysql::MySqlDatabase;
#[cfg(feature = "postgres")]
use crate::postgres::PostgresDatabase;
use crate::{
    failure::Failure,
    migrate::SchemaState,
    random,
    session::{Operation, Shared},
    sqlite::SqliteDatabase,
};

/// How often a transaction that lost a race is run again before its caller hears of it.
const TRIES: u32 = 20;
/// For how long it is: SQLite waits for another program that writes the file for seconds in each try.
const AGAIN_FOR: Duration = Duration::from_secs(30);
/// The longest rest between two tries, in milliseconds.
const REST_MS: u64 = 100;

/// One of the three, or of those that this program was built with.
#[derive(Debug, Clone)]
pub(crate) enum Database {
    Sqlite(SqliteDatabase),
    #[cfg(feature = "postgres")]
    Postgres(PostgresDatabase),
    #[cfg(feature = "mysql")]
    MySql(MySqlDatabase),
}

/// What each of them does alike.
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

/// How an operation wants to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Several statements that hold together.
    Transaction,
    /// One statement that holds by itself where the database can do it in one.
    OneStatement,
    /// Nothing is written.
    ReadOnly,
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

    /// How many groups of single submits may be under way. PostgreSQL's one statement is soon done; SQLite's thread finds
    /// the next group when it has committed the one before; MySQL's four round trips leave the server waiting.
    pub(crate) const fn commits_at_once(&self) -> usize {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => 1,
            Self::Sqlite(_) => 2,
            #[cfg(feature = "mysql")]
            Self::MySql(_) => 4,
        }
    }

    /// Runs the operation until it wins its races, and tells the caller how it ended.
    pub(crate) async fn run<O: Operation>(
        &self,
        mode: Mode,
        operation: O,
    ) -> Result<O::Output, StoreError> {
        let operation = Arc::new(operation);
        let (mut tries, began) = (1, Instant::now());
        loop {
            match self.try_in_time(mode, &operation).await {
                Ok(output) => return Ok(output),
                Err(Failure::Store(error)) => return Err(error),
                Err(Failure::Again(cause)) if tries >= TRIES || began.elapsed() >= AGAIN_FOR => {
                    return Err(StoreError::Unavailable(cause));
                }
                Err(Failure::Again(cause)) => {
                    tracing::debug!(tries, cause, "a transaction lost a race and runs again");
                    let most = REST_MS.min(1 << tries.min(10));
                    tokio::time::sleep(Duration::from_micros(
                        (random::unit() * most as f64 * 1_000.0) as u64,
                    ))
                    .await;
                    tries += 1;
                }
            }
        }
    }

    /// A connection whose other end is gone never answers. Dropped in the middle, it goes to the pool, which finds out.
    async fn try_in_time<O: Operation>(
        &self,
        mode: Mode,
        operation: &Arc<O>,
    ) -> Result<O::Output, Failure> {
        let Some(wait) = self.operation_wait() else {
            return self.try_once(mode, operation).await;
        };
        let late = |_| Err(StoreError::Unavailable(format!("no answer within {wait:?}")).into());
        tokio::time::timeout(wait, self.try_once(mode, operation))
            .await
            .unwrap_or_else(late)
    }

    /// How long a server may take; a file is not waited for.
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
    ) -> Result<O::Output, Failure> {
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
        on_each!(self, database => database.refused_statements().await).map_err(told)
    }

    pub(crate) async fn durability(&self) -> Result<String, StoreError> {
        on_each!(self, database => database.durability().await).map_err(told)
    }

    pub(crate) async fn close(&self) {
        on_each!(self, database => database.close().await);
    }
}

/// A failure as a caller hears of it.
pub(crate) fn told(failure: Failure) -> StoreError {
    match failure {
        Failure::Store(error) => error,
        Failure::Again(cause) => StoreError::Unavailable(cause),
    }
}
