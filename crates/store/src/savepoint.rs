//! All or none, within a transaction that somebody else commits: what a refused operation has written is taken back, and the
//! caller's own work stays.

use sqlx::{Database, Executor};

use crate::failure::Failure;

/// Before the operation.
pub(crate) async fn set<DB: Database>(connection: &mut DB::Connection) -> Result<(), Failure>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    connection.execute(sqlx::raw_sql("SAVEPOINT longhaul_submit")).await?;
    Ok(())
}

/// After it. A server that has given up the whole transaction knows no savepoint any more; then the first failure is what counts.
pub(crate) async fn settle<DB: Database, T>(
    connection: &mut DB::Connection,
    ran: Result<T, Failure>,
) -> Result<T, Failure>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    if ran.is_err()
        && let Err(error) = connection.execute(sqlx::raw_sql("ROLLBACK TO SAVEPOINT longhaul_submit")).await
    {
        tracing::debug!(%error, "a submit that failed could not be taken back: its transaction is over");
        return ran;
    }
    connection.execute(sqlx::raw_sql("RELEASE SAVEPOINT longhaul_submit")).await?;
    ran
}
