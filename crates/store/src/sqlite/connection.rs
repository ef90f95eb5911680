//! Connections to the file, through a driver that runs statements on the calling thread.
//!
//! SQLite has no server. Most statements take less time than a hand-over to another thread.

use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_domain::{Invalid, StoreError};
use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};
use sqlx::SqliteConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use crate::sql_error::SqlError;

/// How long SQLite waits for another program's write lock before the store retries. The writer's
/// thread is blocked until then.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(1);
/// How long a migration waits for another program's write lock. It is not retried.
const MIGRATION_LOCK_WAIT: Duration = Duration::from_secs(5);
/// Statements that a connection keeps prepared; the store has fewer.
const STATEMENTS: usize = 256;
const PRAGMAS: [(&str, &str); 3] = [
    ("cache_size", "-16384"),
    ("wal_autocheckpoint", "8000"),
    ("temp_store", "memory"),
];

/// Opens the connection that writes. The file exists; it may be empty.
pub(crate) fn writer(path: &Path) -> Result<Connection, SqlError> {
    open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .and_then(|connection| {
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "full")?;
            Ok(connection)
        })
        .map_err(|error| opened(path, error))
}

/// Opens a connection that only reads.
pub(super) fn reader(path: &Path) -> Result<Connection, SqlError> {
    open(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(|error| opened(path, error))
}

/// Why the file could not be opened, and what to do about it.
fn opened(path: &Path, error: rusqlite::Error) -> SqlError {
    let path = path.display();

    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => SqlError::unavailable(format!(
            "{path} is not a SQLite database, and it was left as it is: check store.url, or move \
             the file away to begin with an empty store"
        )),
        Some(ErrorCode::DatabaseCorrupt) => SqlError::unavailable(format!(
            "{path} is damaged: restore a backup, or save what can be read with \
             `sqlite3 {path} .recover` ({error})"
        )),
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => SqlError::unavailable(format!(
            "{path} cannot be opened: {error}; look at the space and the health of its disk"
        )),
        Some(_) | None => SqlError::from(error),
    }
}

fn open(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // Plans must not depend on bound values: SQLite would plan a bound LIMIT again at each binding.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.busy_timeout(LOCK_WAIT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);

    for (name, value) in PRAGMAS {
        connection.pragma_update(None, name, value)?;
    }

    Ok(connection)
}

/// An sqlx connection with the writer's settings, for migrations.
pub(super) async fn connect(path: &Path) -> Result<SqliteConnection, sqlx::Error> {
    use sqlx::ConnectOptions as _;

    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(MIGRATION_LOCK_WAIT);

    PRAGMAS
        .iter()
        .fold(options, |options, (name, value)| {
            options.pragma(*name, *value)
        })
        .connect()
        .await
}

/// The file that a `sqlite:` URL names.
pub(super) fn path_of(url: &str) -> Result<PathBuf, StoreError> {
    let path = url
        .strip_prefix("sqlite://")
        .or_else(|| url.strip_prefix("sqlite:"))
        .unwrap_or(url);
    let path = path.split('?').next().unwrap_or_default();
    if path.is_empty() || path == ":memory:" {
        let allowed = "sqlite://path/to/file.db (a store in memory would not be durable)";
        return Err(Invalid::new("the store's URL", format!("is {url:?}"), allowed).into());
    }

    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn a_full_disk_is_named_with_the_file() {
        let full = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
        let error = opened(
            Path::new("/data/tasks.db"),
            rusqlite::Error::SqliteFailure(full, None),
        );
        let told = StoreError::from(error).to_string();
        assert!(told.contains("/data/tasks.db cannot be opened"), "{told}");
        assert!(told.contains("the space"), "{told}");
    }

    #[test]
    fn a_statement_is_planned_once_whatever_is_bound() {
        let folder =
            std::env::temp_dir().join(format!("longhaul-plans-{:016x}", crate::random::next_u64()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("tasks.db");
        crate::sqlite::file::make_if_missing(&path).unwrap();
        let connection = writer(&path).unwrap();
        connection
            .execute_batch("CREATE TABLE t (n integer); INSERT INTO t VALUES (1), (2), (3)")
            .unwrap();
        let mut statement = connection
            .prepare("SELECT n FROM t ORDER BY n LIMIT ?1")
            .unwrap();

        for limit in [1_i64, 2, 3] {
            let rows = statement
                .query_map([limit], |row| row.get::<_, i64>(0))
                .unwrap();
            assert_eq!(rows.last().unwrap().unwrap(), limit);
        }

        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
        drop(statement);
        drop(connection);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
