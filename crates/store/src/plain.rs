//! The store's statements and connection settings, for programs that do not use the store: for
//! example a benchmark that sends the same statements, or a look at a query plan. Nothing here runs
//! a statement.

use std::path::Path;

use longhaul_domain::StoreError;

use crate::{catalog::Sql, mysql, postgres, sqlite};

/// A kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseKind {
    Sqlite,
    Postgres,
    /// MySQL or MariaDB.
    MySql,
}

/// The name and text of every statement that the store sends to this kind of database.
///
/// The name is that of its file in `sql/`, and the text is ready to prepare. A statement over many
/// rows appears once for each number of rows, largest first, under the same name. Parameters are
/// numbered as in the file. MySQL gets a plain `?` for each, bound in the order of the text.
pub fn statements(kind: DatabaseKind) -> Vec<(&'static str, &'static str)> {
    let named = |sql: &'static Sql| (sql.name, sql.text.as_str());
    match kind {
        DatabaseKind::Sqlite => sqlite::statements().map(named).collect(),
        DatabaseKind::Postgres => postgres::statements().map(named).collect(),
        DatabaseKind::MySql => mysql::statements().map(named).collect(),
    }
}

/// A connection with the settings of the store's writer. It does not lock the store: close the
/// store first.
pub fn open_sqlite(path: &Path) -> Result<rusqlite::Connection, StoreError> {
    sqlite::open_writer(path).map_err(StoreError::from)
}

/// A connection with the store's settings, which determine the plans of its statements.
pub async fn connect_postgres(url: &str) -> Result<sqlx::PgConnection, StoreError> {
    postgres::connect(url).await.map_err(StoreError::from)
}

/// A connection with the store's settings.
pub async fn connect_mysql(url: &str) -> Result<sqlx::MySqlConnection, StoreError> {
    mysql::connect(url).await.map_err(StoreError::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statements_of_a_claim_and_its_finish_are_listed() {
        let by_lanes = [
            "insert_tasks",
            "claim_lanes",
            "claim_pick",
            "claim_take",
            "complete_tasks",
        ];

        for (kind, wanted) in [
            (DatabaseKind::Sqlite, &by_lanes[..]),
            (
                DatabaseKind::Postgres,
                &["insert_tasks", "claim_tasks", "complete_tasks"],
            ),
            (DatabaseKind::MySql, &by_lanes[..]),
        ] {
            let listed = statements(kind);
            for name in wanted {
                assert!(
                    listed.iter().any(|(listed, _)| listed == name),
                    "{kind:?} lacks {name}"
                );
            }
        }
    }
}
