//! Savepoints in a caller's own transaction. A refused operation is rolled back to the savepoint,
//! and the caller's own work stays.
//!
//! The statements are plain text, not a nested transaction of sqlx. If a nested transaction is
//! cancelled while it begins, sqlx rolls back the outer one, and the caller's next write commits at
//! once.

use longhaul_domain::{Invalid, StoreError};
use sqlx::{Connection, Database, Executor};

use crate::sql_error::SqlError;

/// Sets the savepoint before the operation.
pub(crate) async fn set<DB: Database>(connection: &mut DB::Connection) -> Result<(), SqlError>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    if !connection.is_in_transaction() {
        let allowed = "one that was begun with sqlx, by begin or begin_with";
        return Err(
            StoreError::Invalid(Invalid::new("transaction", "is not open", allowed)).into(),
        );
    }

    connection
        .execute(sqlx::raw_sql("SAVEPOINT longhaul_submit"))
        .await?;
    Ok(())
}

/// Releases the savepoint after the operation. Rolls a failed operation back first.
pub(crate) async fn settle<DB: Database, T>(
    connection: &mut DB::Connection,
    ran: Result<T, SqlError>,
) -> Result<T, SqlError>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    if let Err(failure) = &ran {
        let taken_back = connection
            .execute(sqlx::raw_sql("ROLLBACK TO SAVEPOINT longhaul_submit"))
            .await;
        // A deadlock on MySQL and a full disk on SQLite end the whole transaction, the caller's
        // work included.
        taken_back.map_err(|_| gone(failure))?;
    }

    connection
        .execute(sqlx::raw_sql("RELEASE SAVEPOINT longhaul_submit"))
        .await?;
    ran
}

fn gone(failure: &SqlError) -> SqlError {
    let why = match failure {
        SqlError::LostRace(why) => why.clone(),
        SqlError::Store(error) => error.to_string(),
    };
    StoreError::Unavailable(format!(
        "the database has given up the whole transaction, begin it again: {why}"
    ))
    .into()
}
