//! The store on PostgreSQL.
//!
//! Arrays carry batches in, one statement claims, and claims start where the ones before ended (see
//! `crate::bounds`). Nothing here decides anything: that is `crate::operations` and the domain.

mod doorbell;
mod session;

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::StoreError;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection};

use crate::{
    catalog::Sql,
    connections::{Bounds, CONNECT_WAIT, Connections, lives, open_pool},
    failure::Failure,
    migrate, savepoint,
    session::{Operation, Shared},
};
use doorbell::PgDoorbell;
use session::PgSession;
pub(crate) use session::statements;

/// Every statement of this store goes by keys and indexes, whatever the statistics say of a table that was empty a
/// minute ago and holds a million rows now; only lines of counts, which are few, are read as they stand. Plans are made once for each connection and stay the same.
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
    pub(crate) async fn open(url: &str, bounds: Bounds, shared: Shared) -> Result<Self, Failure> {
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
    pub(crate) async fn transact<O: Operation>(&self, operation: &O) -> Result<O::Output, Failure> {
        let mut taken = self.connections.take().await?;
        let done = self.transact_on(&mut taken.connection, operation).await;
        taken.answered(done)
    }

    async fn transact_on<O: Operation>(
        &self,
        connection: &mut PgConnection,
        operation: &O,
    ) -> Result<O::Output, Failure> {
        let mut transaction = connection.begin().await?;
        let mut session = PgSession::new(&mut transaction, &self.shared);
        let ran = operation.run(&mut session).await;
        let moves = session.into_moves();
        let output = match ran {
            Ok(output) => output,
            Err(failure) => return Err(rolled_back(transaction, failure).await),
        };
        transaction.commit().await?;
        self.shared.note_moves(&moves);
        Ok(output)
    }

    /// Runs an operation that is one statement, or only reads: it needs no transaction of its own.
    pub(crate) async fn once<O: Operation>(&self, operation: &O) -> Result<O::Output, Failure> {
        let mut taken = self.connections.take().await?;
        let mut session = PgSession::new(&mut taken.connection, &self.shared);
        let ran = operation.run(&mut session).await;
        let moves = session.into_moves();
        if ran.is_ok() {
            self.shared.note_moves(&moves);
        }
        taken.answered(ran)
    }

    /// Runs the operation in a transaction that the caller has open. One that is refused leaves nothing behind.
    pub(crate) async fn within<O: Operation>(
        &self,
        connection: &mut PgConnection,
        operation: &O,
    ) -> Result<O::Output, Failure> {
        savepoint::set::<sqlx::Postgres>(connection).await?;
        let ran = operation
            .run(&mut PgSession::new(connection, &self.shared))
            .await;
        savepoint::settle::<sqlx::Postgres, _>(connection, ran).await
    }

    /// Prepares every statement and answers with those that the database refuses.
    pub(crate) async fn refused_statements(&self) -> Result<Vec<String>, Failure> {
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
    pub(crate) async fn durability(&self) -> Result<String, Failure> {
        let query = "SELECT 'fsync=' || current_setting('fsync') || ', synchronous_commit=' \
                     || current_setting('synchronous_commit')";
        Ok(sqlx::query_scalar(query)
            .fetch_one(&self.connections.pool)
            .await?)
    }

    pub(crate) fn doorbell(&self) -> PgDoorbell {
        PgDoorbell::new(self.connections.pool.clone())
    }

    pub(crate) async fn close(&self) {
        self.connections.close().await;
    }

    pub(crate) const fn operation_wait(&self) -> Duration {
        self.connections.operation_wait
    }
}

/// How long a transaction may wait for its next statement. A node that is cut off or stopped in the middle of one would
/// hold its locks until then, and whoever rescues its tasks would wait for them.
const SILENCE: &str = "5s";

/// How every connection is made.
fn connect_options(url: &str) -> Result<PgConnectOptions, Failure> {
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

/// A connection like those of the pool.
pub(crate) async fn connect(url: &str) -> Result<PgConnection, Failure> {
    Ok(PgConnection::connect_with(&connect_options(url)?).await?)
}

/// Ends a failed transaction before its caller goes on: dropped, it would keep its locks for a moment, and a claim that
/// skips locked rows would pass over them.
async fn rolled_back(transaction: sqlx::PgTransaction<'_>, failure: Failure) -> Failure {
    if let Err(error) = transaction.rollback().await {
        tracing::debug!(%error, "a failed transaction could not be rolled back; the server does it");
    }
    failure
}

/// The statement as sqlx wants it.
fn text(sql: &'static Sql) -> sqlx::SqlStr {
    sqlx::SqlSafeStr::into_sql_str(sql.text.as_str())
}
