//! The store on PostgreSQL.
//!
//! Batches travel as arrays. One statement claims, and each claim starts where the last one ended
//! (see `crate::bounds`). Decisions belong to `crate::operations` and the domain.

mod notifier;
mod session;

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::StoreError;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection};

use crate::{
    catalog::Sql,
    connections::{Bounds, CONNECT_WAIT, Connections, lives, open_pool},
    migrate, savepoint,
    session::{Operation, Shared},
    sql_error::SqlError,
};
use notifier::PgNotifier;
use session::PgSession;
pub(crate) use session::statements;

/// Every statement uses keys and indexes, except scans of the few count rows. Statistics must not
/// change that: a table may grow from empty to a million rows in a minute. Each connection plans
/// once and keeps its plans.
const PLANS: [(&str, &str); 6] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
];

/// A pool of connections to one PostgreSQL database.
#[derive(Debug, Clone)]
pub(crate) struct PostgresDatabase {
    connections: Connections<sqlx::Postgres>,
    pub(crate) shared: Arc<Shared>,
}

impl PostgresDatabase {
    pub(crate) async fn open(url: &str, bounds: Bounds, shared: Shared) -> Result<Self, SqlError> {
        let pool = PgPoolOptions::new()
            .max_connections(bounds.max_connections)
            .acquire_timeout(CONNECT_WAIT)
            .test_before_acquire(false)
            .after_release(|connection, _| Box::pin(lives::<sqlx::Postgres>(connection)));
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

        migrate::run(&mut connection, &migrate::POSTGRES).await
    }

    pub(crate) async fn schema(&self) -> Result<migrate::SchemaState, StoreError> {
        let mut connection = self
            .connections
            .pool
            .acquire()
            .await
            .map_err(migrate::failed)?;
        migrate::state(&mut *connection, &migrate::POSTGRES).await
    }

    pub(crate) async fn check_schema(&self) -> Result<(), StoreError> {
        let mut connection = self
            .connections
            .pool
            .acquire()
            .await
            .map_err(migrate::failed)?;
        migrate::check(&mut *connection, &migrate::POSTGRES).await
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
        connection: &mut PgConnection,
        operation: &O,
    ) -> Result<O::Output, SqlError> {
        let mut transaction = connection.begin().await?;
        let mut session = PgSession::new(&mut transaction, &self.shared);
        let ran = operation.run(&mut session).await;
        let moves = session.into_moves();

        let output = match ran {
            Ok(output) => output,
            Err(failure) => return Err(rolled_back(transaction, failure).await),
        };

        // Note the moves after the commit: a rolled back claim must not raise a bound.
        transaction.commit().await?;
        self.shared.note_moves(&moves);
        Ok(output)
    }

    /// Runs an operation that only reads or is one statement. It needs no transaction.
    pub(crate) async fn once<O: Operation>(&self, operation: &O) -> Result<O::Output, SqlError> {
        let mut taken = self.connections.take().await?;
        let mut session = PgSession::new(&mut taken.connection, &self.shared);
        let ran = operation.run(&mut session).await;
        let moves = session.into_moves();

        if ran.is_ok() {
            self.shared.note_moves(&moves);
        }

        taken.answered(ran)
    }

    /// Runs the operation in the caller's open transaction. A refused operation leaves no changes.
    pub(crate) async fn within<O: Operation>(
        &self,
        connection: &mut PgConnection,
        operation: &O,
    ) -> Result<O::Output, SqlError> {
        savepoint::set::<sqlx::Postgres>(connection).await?;
        let ran = operation
            .run(&mut PgSession::new(connection, &self.shared))
            .await;
        savepoint::settle::<sqlx::Postgres, _>(connection, ran).await
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
        let query = "SELECT 'fsync=' || current_setting('fsync') || ', synchronous_commit=' \
                     || current_setting('synchronous_commit')";
        Ok(sqlx::query_scalar(query)
            .fetch_one(&self.connections.pool)
            .await?)
    }

    pub(crate) fn notifier(&self) -> PgNotifier {
        PgNotifier::new(self.connections.pool.clone())
    }

    pub(crate) async fn close(&self) {
        self.connections.close().await;
    }

    pub(crate) const fn operation_wait(&self) -> Duration {
        self.connections.operation_wait
    }
}

/// How long a transaction may idle between statements. A node that stops in a transaction holds its
/// locks that long, and the rescue of its tasks waits for them.
const SILENCE: &str = "5s";

/// The options of every connection.
fn connect_options(url: &str) -> Result<PgConnectOptions, SqlError> {
    let options: PgConnectOptions = url.parse()?;
    Ok(options
        .application_name("longhaul")
        .statement_cache_capacity(256)
        .options([
            ("synchronous_commit", "on"),
            ("idle_in_transaction_session_timeout", SILENCE),
            ("lock_timeout", "10s"),
        ])
        .options(PLANS))
}

/// A connection with the pool's options.
pub(crate) async fn connect(url: &str) -> Result<PgConnection, SqlError> {
    Ok(PgConnection::connect_with(&connect_options(url)?).await?)
}

/// Ends a failed transaction before its caller continues. A dropped transaction keeps its locks for
/// a moment, and claims would skip those rows.
async fn rolled_back(transaction: sqlx::PgTransaction<'_>, failure: SqlError) -> SqlError {
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
