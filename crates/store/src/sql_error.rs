//! Why a statement failed, and whether the transaction should run again.

use longhaul_domain::{Invalid, StoreError, lifecycle::Refusal};

/// A failed step of an operation.
#[derive(Debug, Clone)]
pub(crate) enum SqlError {
    /// Another transaction won a race. Nothing was written; the operation runs again.
    LostRace(String),
    /// The operation fails with this error.
    Store(StoreError),
}

impl SqlError {
    /// An answer that the database should never give.
    pub(crate) fn internal(what: impl std::fmt::Display) -> Self {
        Self::Store(StoreError::Internal(what.to_string()))
    }

    pub(crate) fn unavailable(what: impl std::fmt::Display) -> Self {
        Self::Store(StoreError::Unavailable(what.to_string()))
    }
}

impl From<StoreError> for SqlError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Invalid> for SqlError {
    fn from(error: Invalid) -> Self {
        Self::Store(error.into())
    }
}

impl From<Refusal> for SqlError {
    fn from(error: Refusal) -> Self {
        Self::Store(error.into())
    }
}

impl From<serde_json::Error> for SqlError {
    fn from(error: serde_json::Error) -> Self {
        Self::internal(error)
    }
}

/// For operations that are not retried.
impl From<SqlError> for StoreError {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Store(error) => error,
            SqlError::LostRace(cause) => Self::Unavailable(cause),
        }
    }
}

/// PostgreSQL: serialization failure and deadlock.
const POSTGRES_LOST_RACE: [&str; 2] = ["40001", "40P01"];
/// PostgreSQL: the classes of errors of an unreachable or overloaded server (connection, resources,
/// operator intervention, system error), and a timed-out lock wait.
const POSTGRES_UNAVAILABLE: [&str; 5] = ["08", "53", "57", "58", "55P03"];
/// PostgreSQL: an idle transaction that the server ended, and a server that is read-only after a
/// failover.
const POSTGRES_UNAVAILABLE_TOO: [&str; 2] = ["25P03", "25006"];
/// MySQL: deadlock and changed row.
#[cfg(feature = "mysql")]
const MYSQL_LOST_RACE: [u16; 2] = [1213, 1020];
/// MySQL: lock waits, shutdown, read-only, disk full, killed.
#[cfg(feature = "mysql")]
const MYSQL_UNAVAILABLE: [u16; 11] = [
    1205, 1040, 1053, 1290, 1836, 1021, 1114, 3024, 1317, 1927, 1180,
];
/// SQLite: busy and locked.
const SQLITE_LOST_RACE: [i64; 2] = [5, 6];
/// SQLite: I/O error, full disk, and a file that cannot be opened.
const SQLITE_UNAVAILABLE: [i64; 3] = [10, 13, 14];

/// What a database's own error means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    LostRace,
    Unavailable,
    Internal,
}

impl Cause {
    fn error(self, what: impl std::fmt::Display) -> SqlError {
        match self {
            Self::LostRace => SqlError::LostRace(what.to_string()),
            Self::Unavailable => SqlError::unavailable(what),
            Self::Internal => SqlError::internal(what),
        }
    }

    /// The low byte of SQLite's extended code is its kind.
    fn of_sqlite(code: i64) -> Self {
        match code & 0xff {
            kind if SQLITE_LOST_RACE.contains(&kind) => Self::LostRace,
            kind if SQLITE_UNAVAILABLE.contains(&kind) => Self::Unavailable,
            _ => Self::Internal,
        }
    }

    fn of_postgres(code: &str) -> Self {
        let is_unavailable = POSTGRES_UNAVAILABLE
            .iter()
            .any(|class| code.starts_with(class));

        match code {
            code if POSTGRES_LOST_RACE.contains(&code) => Self::LostRace,
            code if is_unavailable || POSTGRES_UNAVAILABLE_TOO.contains(&code) => Self::Unavailable,
            _ => Self::Internal,
        }
    }

    #[cfg(feature = "mysql")]
    fn of_mysql(number: u16) -> Self {
        match number {
            number if MYSQL_LOST_RACE.contains(&number) => Self::LostRace,
            number if MYSQL_UNAVAILABLE.contains(&number) => Self::Unavailable,
            _ => Self::Internal,
        }
    }

    fn of_database(error: &dyn sqlx::error::DatabaseError) -> Self {
        #[cfg(feature = "mysql")]
        if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
            return Self::of_mysql(error.number());
        }

        // PostgreSQL's codes have five characters; SQLite's are shorter numbers.
        let code = error.code().unwrap_or_default();
        match code.parse() {
            Ok(number) if code.len() < 5 => Self::of_sqlite(number),
            Ok(_) | Err(_) => Self::of_postgres(&code),
        }
    }
}

/// Errors of the store's own connections to SQLite.
impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        let cause = error.sqlite_error().map_or(Cause::Internal, |error| {
            Cause::of_sqlite(i64::from(error.extended_code))
        });
        cause.error(error)
    }
}

impl From<sqlx::Error> for SqlError {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "sqlx adds kinds of errors at any time"
    )]
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;

        let cause = match &error {
            E::Database(error) => Cause::of_database(error.as_ref()),
            E::Io(_)
            | E::Tls(_)
            | E::Protocol(_)
            | E::PoolTimedOut
            | E::PoolClosed
            | E::WorkerCrashed => Cause::Unavailable,
            _ => Cause::Internal,
        };
        cause.error(error)
    }
}
