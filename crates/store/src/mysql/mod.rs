//! The store on MySQL (from 8.0) and MariaDB (from 10.10, for RANDOM_BYTES).
//!
//! READ COMMITTED avoids gap locks. Statements lock rows by primary key in the order of their ids.
//! After a deadlock the caller of this module runs the operation again.

mod claim;
mod session;

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::StoreError;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{Connection as _, MySqlConnection};

use crate::{
    catalog::Sql,
    connections::{Bounds, CONNECT_WAIT, Connections, lives, open_pool},
    migrate, savepoint,
    session::{Operation, Shared},
    sql_error::SqlError,
};
use session::MySqlSession;
pub(crate) use session::statements;

/// How long a process waits while another migrates the same database.
const MIGRATION_WAIT: Duration = Duration::from_secs(600);

/// A pool of connections to one MySQL or MariaDB database.
#[derive(Debug, Clone)]
pub(crate) struct MySqlDatabase {
    connections: Connections<sqlx::MySql>,
    pub(crate) shared: Arc<Shared>,
}

impl MySqlDatabase {
    pub(crate) async fn open(url: &str, bounds: Bounds, shared: Shared) -> Result<Self, SqlError> {
        let pool = MySqlPoolOptions::new()
            .max_connections(bounds.max_connections)
            .acquire_timeout(CONNECT_WAIT)
            .test_before_acquire(false)
            .after_release(|connection, _| Box::pin(lives::<sqlx::MySql>(connection)))
            .after_connect(|connection, _| Box::pin(set_session(connection)));

        let pool = open_pool(pool, connect_options(url)?).await?;
        Ok(Self {
            connections: Connections::new(pool, bounds.operation_wait),
            shared: Arc::new(shared),
        })
    }

    pub(crate) async fn migrate(&self) -> Result<(), StoreError> {
        let mut connection = self
            .connections
            .pool
            .acquire()
            .await
            .map_err(migrate::failed)?
            .detach();

        // sqlx asks for its lock with an endless wait. MariaDB does not support that, and sqlx then
        // continues without a lock. This lock ends with the connection.
        let is_ours: Option<i64> =
            sqlx::query_scalar("SELECT GET_LOCK(CONCAT('longhaul.', MD5(DATABASE())), ?)")
                .bind(MIGRATION_WAIT.as_secs())
                .fetch_one(&mut connection)
                .await
                .map_err(migrate::failed)?;
        if is_ours != Some(1) {
            return Err(migrate::failed(format!(
                "another process has been at it for {MIGRATION_WAIT:?}"
            )));
        }

        let migrated = migrate::run(&mut connection, &migrate::MYSQL).await;
        // The lock goes with the connection, even if the close fails.
        let _ = connection.close().await;
        migrated
    }

    pub(crate) async fn schema(&self) -> Result<migrate::SchemaState, StoreError> {
        let mut connection = self
            .connections
            .pool
            .acquire()
            .await
            .map_err(migrate::failed)?;
        migrate::state(&mut *connection, &migrate::MYSQL).await
    }

    pub(crate) async fn check_schema(&self) -> Result<(), StoreError> {
        let mut connection = self
            .connections
            .pool
            .acquire()
            .await
            .map_err(migrate::failed)?;
        migrate::check(&mut *connection, &migrate::MYSQL).await
    }

    /// Runs the operation in one transaction.
    pub(crate) async fn transact<O: Operation>(
        &self,
        operation: &O,
    ) -> Result<O::Output, SqlError> {
        let mut taken = self.connections.take().await?;
        let done = self.transact_on(&mut taken.connection, operation).await;
        taken.answered(done)
    }

    async fn transact_on<O: Operation>(
        &self,
        connection: &mut MySqlConnection,
        operation: &O,
    ) -> Result<O::Output, SqlError> {
        let mut transaction = connection.begin().await?;
        let mut session = MySqlSession::new(&mut transaction, &self.shared);
        let ran = operation.run(&mut session).await;
        let moves = session.into_moves();

        match ran {
            // Note the moves after the commit: a rolled back claim must not raise a bound.
            Ok(output) => {
                transaction.commit().await?;
                self.shared.note_moves(&moves);
                Ok(output)
            }
            Err(failure) => Err(rolled_back(transaction, failure).await),
        }
    }

    /// Runs an operation that only reads.
    pub(crate) async fn read<O: Operation>(&self, operation: &O) -> Result<O::Output, SqlError> {
        let mut taken = self.connections.take().await?;
        let read = operation
            .run(&mut MySqlSession::new(&mut taken.connection, &self.shared))
            .await;
        taken.answered(read)
    }

    /// Runs the operation in the caller's open transaction. A refused operation leaves no changes.
    pub(crate) async fn within<O: Operation>(
        &self,
        connection: &mut MySqlConnection,
        operation: &O,
    ) -> Result<O::Output, SqlError> {
        savepoint::set::<sqlx::MySql>(connection).await?;
        let ran = operation
            .run(&mut MySqlSession::new(connection, &self.shared))
            .await;
        savepoint::settle::<sqlx::MySql, _>(connection, ran).await
    }

    /// Prepares every statement and returns those that the database refuses.
    pub(crate) async fn refused_statements(&self) -> Result<Vec<String>, SqlError> {
        use sqlx::Executor as _;

        let mut connection = self.connections.pool.acquire().await?;
        let mut refused = Vec::new();
        for sql in statements() {
            if let Err(error) = (&mut *connection).prepare(text(sql)).await {
                refused.push(format!("{}: {error}", sql.name));
            }
        }

        Ok(refused)
    }

    /// The settings on which a commit's durability rests.
    pub(crate) async fn durability(&self) -> Result<String, SqlError> {
        let query =
            "SELECT CONCAT('innodb_flush_log_at_trx_commit=', @@innodb_flush_log_at_trx_commit)";
        Ok(sqlx::query_scalar(query)
            .fetch_one(&self.connections.pool)
            .await?)
    }

    pub(crate) async fn close(&self) {
        self.connections.close().await;
    }

    pub(crate) const fn operation_wait(&self) -> Duration {
        self.connections.operation_wait
    }
}

/// The options of every connection.
fn connect_options(url: &str) -> Result<MySqlConnectOptions, SqlError> {
    let options: MySqlConnectOptions = url.parse()?;
    Ok(options.charset("utf8mb4").statement_cache_capacity(256))
}

/// Sets up a connection before its first use.
async fn set_session(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    use sqlx::Executor as _;

    connection
        .execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        .await?;

    // The second setting is MariaDB's: how long a transaction may idle between statements. A node
    // that stops in a transaction holds its locks that long, and the rescue of its tasks waits for
    // them.
    connection
        .execute(
            "SET SESSION innodb_lock_wait_timeout = 10 /*M!100300 , SESSION \
             idle_transaction_timeout = 5 */",
        )
        .await?;

    Ok(())
}

/// A connection with the pool's options.
pub(crate) async fn connect(url: &str) -> Result<MySqlConnection, SqlError> {
    let mut connection = MySqlConnection::connect_with(&connect_options(url)?).await?;
    set_session(&mut connection).await?;
    Ok(connection)
}

/// Ends a failed transaction before its caller continues. A dropped transaction keeps its locks for
/// a moment, and claims would skip those rows.
async fn rolled_back(transaction: sqlx::MySqlTransaction<'_>, failure: SqlError) -> SqlError {
    if let Err(error) = transaction.rollback().await {
        tracing::debug!(
            %error,
            "a failed transaction could not be rolled back; the server does it"
        );
    }
    failure
}

/// The statement as sqlx's string type.
fn text(sql: &'static Sql) -> sqlx::SqlStr {
    sqlx::SqlSafeStr::into_sql_str(sql.text.as_str())
}
