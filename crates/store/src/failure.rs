//! Why a statement did not do its work, and whether the whole transaction should simply run again.

use longhaul_domain::{Invalid, StoreError, lifecycle::Refusal};

/// A failed step of an operation.
#[derive(Debug)]
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

/// Deadlocks and serialization failures of PostgreSQL; of MySQL by SQLSTATE; busy and locked of SQLite.
const AGAIN: [&str; 10] = ["40001", "40P01", "55P03", "5", "6", "261", "262", "517", "518", "773"];
/// Shutting down, out of space or connections, read-only after a failover; I/O errors and a full disk of SQLite.
const AWAY: [&str; 14] = [
    "57P01", "57P02", "57P03", "57014", "53100", "53200", "53300", "25006", "08006", "08S01", "10", "13", "778", "1034",
];
/// MySQL's own numbers for the same.
const MYSQL_AGAIN: [u16; 3] = [1213, 1205, 1020];
const MYSQL_AWAY: [u16; 7] = [1040, 1053, 1290, 1836, 1021, 1114, 3024];

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        if let E::Database(cause) = &error {
            let number = cause.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>().map(|cause| cause.number());
            let code = cause.code().unwrap_or_default();
            if number.is_some_and(|n| MYSQL_AGAIN.contains(&n)) || AGAIN.contains(&code.as_ref()) {
                return Self::Again(error.to_string());
            }
            if number.is_some_and(|n| MYSQL_AWAY.contains(&n)) || AWAY.contains(&code.as_ref()) {
                return Self::Store(StoreError::Unavailable(error.to_string()));
            }
        }
        let away =
            matches!(error, E::Io(_) | E::Tls(_) | E::Protocol(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed);
        match away {
            true => Self::Store(StoreError::Unavailable(error.to_string())),
            false => Self::internal(error),
        }
    }
}
