//! All or none, within a transaction that somebody else commits: what a refused operation has written is taken back, and the
//! caller's own work stays.
//!
//! The statements are sent as text, not as a nested transaction of sqlx's: one of those that is given up while it begins rolls
//! back what is around it, and what the caller writes next is committed at once.

use longhaul_domain::{Invalid, StoreError};
use sqlx::{Connection, Database, Executor};

use crate::failure::Failure;

/// Before the operation.
pub(crate) async fn set<DB: Database>(connection: &mut DB::Connection) -> Result<(), Failure>
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

/// After it.
pub(crate) async fn settle<DB: Database, T>(
    connection: &mut DB::Connection,
    ran: Result<T, Failure>,
) -> Result<T, Failure>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    if let Err(failure) = &ran {
        let taken_back = connection
            .execute(sqlx::raw_sql("ROLLBACK TO SAVEPOINT longhaul_submit"))
            .await;
        // A deadlock on MySQL and a full disk on SQLite end the whole transaction, and with it everything that the caller has done.
        taken_back.map_err(|_| gone(failure))?;
    }
    connection
        .execute(sqlx::raw_sql("RELEASE SAVEPOINT longhaul_submit"))
        .await?;
    ran
}

fn gone(failure: &Failure) -> Failure {
    let why = match failure {
        Failure::Again(why) => why.clone(),
        Failure::Store(error) => error.to_string(),
    };
    StoreError::Unavailable(format!(
        "the database has given up the whole transaction, begin it again: {why}"
    ))
    .into()
}
