//! What the store sends and how it connects, for programs that do without the store: a benchmark that sends the same
//! statements by itself, or a person who has a planner explain one. Nothing here runs a statement.

use std::path::Path;

use longhaul_domain::StoreError;

use crate::{catalog::Sql, database::told, mysql, postgres, sqlite};

/// One of the databases that a store can be on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseKind {
    Sqlite,
    Postgres,
    /// MySQL or MariaDB.
    MySql,
}

/// Every statement that a store on this kind of database can send, as its name and its text.
///
/// The name is that of its file in `sql/`, the text is ready to be prepared. An insert whose rows are spelled out is
/// there once for each number of rows, largest first, under one name. Parameters are numbered as in the file, but on
/// MySQL, which gets a plain `?` for each and has them bound in the order of the text.
pub fn statements(kind: DatabaseKind) -> Vec<(&'static str, &'static str)> {
    let named = |sql: &'static Sql| (sql.name, sql.text.as_str());
    match kind {
        DatabaseKind::Sqlite => sqlite::statements().map(named).collect(),
        DatabaseKind::Postgres => postgres::statements().map(named).collect(),
        DatabaseKind::MySql => mysql::statements().map(named).collect(),
    }
}

/// A connection with the settings of the store's own writer. It takes no lock on the store: close that first.
pub fn open_sqlite(path: &Path) -> Result<rusqlite::Connection, StoreError> {
    sqlite::open_writer(path).map_err(told)
}

/// A connection with the settings of the store's own, on which the plans of its statements rest.
pub async fn connect_postgres(url: &str) -> Result<sqlx::PgConnection, StoreError> {
    postgres::connect(url).await.map_err(told)
}

/// A connection with the settings of the store's own.
pub async fn connect_mysql(url: &str) -> Result<sqlx::MySqlConnection, StoreError> {
    mysql::connect(url).await.map_err(told)
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
