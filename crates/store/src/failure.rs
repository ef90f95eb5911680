//! Why a statement did not do its work, and whether the whole transaction should simply run again.

use longhaul_domain::{Invalid, StoreError, lifecycle::Refusal};

/// A failed step of an operation.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// Another transaction won a race: nothing was written, run again.
    Again(String),
    /// The caller must know.
    Store(StoreError),
}

impl Failure {
    /// An answer that the database should never give.
    pub(crate) fn internal(what: impl std::fmt::Display) -> Self {
        Self::Store(StoreError::Internal(what.to_string()))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Invalid> for Failure {
    fn from(error: Invalid) -> Self {
        Self::Store(error.into())
    }
}

impl From<Refusal> for Failure {
    fn from(error: Refusal) -> Self {
        Self::Store(error.into())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::internal(error)
    }
}

/// Lost races of PostgreSQL: serialization, deadlock.
const AGAIN: [&str; 2] = ["40001", "40P01"];
/// Classes of PostgreSQL's codes that mean the server is away or short of something: connection, resources, operator
/// intervention, system error; and a lock that was waited for in vain.
const AWAY: [&str; 5] = ["08", "53", "57", "58", "55P03"];
/// A transaction ended by the server for idling, and a server that turned read-only in a failover.
const AWAY_TOO: [&str; 2] = ["25P03", "25006"];
/// MySQL's numbers for the same: deadlock and changed row; lock waits, shutdown, read-only, disk full, killed.
#[cfg(feature = "mysql")]
const MYSQL_AGAIN: [u16; 2] = [1213, 1020];
#[cfg(feature = "mysql")]
const MYSQL_AWAY: [u16; 11] = [
    1205, 1040, 1053, 1290, 1836, 1021, 1114, 3024, 1317, 1927, 1180,
];
/// SQLite's busy and locked, and its I/O error, full disk and file that cannot be opened.
const SQLITE_AGAIN: [i64; 2] = [5, 6];
const SQLITE_AWAY: [i64; 3] = [10, 13, 14];

/// What a database's own error means to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Again,
    Away,
    Broken,
}

fn meaning(cause: &dyn sqlx::error::DatabaseError) -> Meaning {
    let code = cause.code().unwrap_or_default();
    #[cfg(feature = "mysql")]
    if let Some(cause) = cause.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return match cause.number() {
            number if MYSQL_AGAIN.contains(&number) => Meaning::Again,
            number if MYSQL_AWAY.contains(&number) => Meaning::Away,
            _ => Meaning::Broken,
        };
    }
    let sqlite_kind = code
        .parse::<i64>()
        .ok()
        .filter(|_| code.len() < 5)
        .map(|number| number & 0xff);
    let away =
        AWAY.iter().any(|class| code.starts_with(class)) || AWAY_TOO.contains(&code.as_ref());
    match sqlite_kind {
        None if AGAIN.contains(&code.as_ref()) => Meaning::Again,
        Some(kind) if SQLITE_AGAIN.contains(&kind) => Meaning::Again,
        Some(kind) if SQLITE_AWAY.contains(&kind) => Meaning::Away,
        None if away => Meaning::Away,
        Some(_) | None => Meaning::Broken,
    }
}

/// The store's own connections to SQLite. The low byte of an extended code is its kind.
impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        match error
            .sqlite_error()
            .map(|cause| i64::from(cause.extended_code) & 0xff)
        {
            Some(kind) if SQLITE_AGAIN.contains(&kind) => Self::Again(error.to_string()),
            Some(kind) if SQLITE_AWAY.contains(&kind) => {
                Self::Store(StoreError::Unavailable(error.to_string()))
            }
            Some(_) | None => Self::internal(error),
        }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        let meaning = if let E::Database(cause) = &error {
            meaning(cause.as_ref())
        } else if is_away(&error) {
            Meaning::Away
        } else {
            Meaning::Broken
        };
        match meaning {
            Meaning::Again => Self::Again(error.to_string()),
            Meaning::Away => Self::Store(StoreError::Unavailable(error.to_string())),
            Meaning::Broken => Self::internal(error),
        }
    }
}

fn is_away(error: &sqlx::Error) -> bool {
    use sqlx::Error as E;
    matches!(
        error,
        E::Io(_) | E::Tls(_) | E::Protocol(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed
    )
}
