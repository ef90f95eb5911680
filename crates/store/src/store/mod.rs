//! The store: a handle to one database, and the contract on it.
//!
//! Each file implements one trait of the contract. A method builds an operation from its arguments;
//! the operation checks them and chooses how it runs.

mod attempt_data;
mod leases;
mod maintenance;
mod outbox;
mod queues;
mod task_commands;
mod task_reads;
mod tokens;

use std::sync::Arc;
use std::time::Instant;

use longhaul_domain::{
    Clock, Invalid, NewTask, StoreError,
    contract::{
        Notifier,
        store::{StoreObserver, StoreOperation, Submitted, TaskReads as _},
    },
    event::OutboxPolicy,
};

#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::connections::Bounds;
#[cfg(feature = "mysql")]
use crate::mysql::MySqlDatabase;
#[cfg(feature = "postgres")]
use crate::postgres::PostgresDatabase;
use crate::{
    batcher::SubmitBatcher,
    database::Database,
    migrate::SchemaState,
    operations::submit,
    options::StoreOptions,
    session::{Mode, Operation, Shared},
    sqlite::SqliteDatabase,
    submitter,
};

/// A store on one of the three databases.
#[derive(Debug, Clone)]
pub struct SqlStore {
    database: Database,
    batcher: SubmitBatcher,
    observer: Option<Arc<dyn StoreObserver>>,
}

impl SqlStore {
    /// Connects to `sqlite://file`, `postgres://…` or `mysql://…`. Leaves the schema as it is:
    /// [`Self::migrate`] updates it, [`Self::check_schema`] refuses one that is not up to date.
    pub async fn connect(url: &str, options: StoreOptions) -> Result<Self, StoreError> {
        let shared = Shared::new(options.outbox, options.clock_offset, options.clock);
        #[cfg(any(feature = "postgres", feature = "mysql"))]
        let bounds = Bounds {
            max_connections: options.max_connections,
            operation_wait: options.operation_wait,
        };
        let scheme = url.split(':').next().unwrap_or_default();

        let opened = match scheme {
            "sqlite" => SqliteDatabase::open(url, options.is_beside, shared).map(Database::Sqlite),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => PostgresDatabase::open(url, bounds, shared)
                .await
                .map(Database::Postgres),
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => MySqlDatabase::open(url, bounds, shared)
                .await
                .map(Database::MySql),
            _ => return Err(no_driver(scheme).into()),
        };

        let database = opened.map_err(StoreError::from)?;
        let batcher = SubmitBatcher::start(database.clone());
        Ok(Self {
            database,
            batcher,
            observer: None,
        })
    }

    /// Reports every operation of this handle to `observer`.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn StoreObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Connects and brings the schema up to date.
    pub async fn open(url: &str, options: StoreOptions) -> Result<Self, StoreError> {
        let store = Self::connect(url, options).await?;
        store.migrate().await?;
        store.now().await?;
        Ok(store)
    }

    /// Updates the schema to this program's version. Refuses a newer one.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.database.migrate().await
    }

    /// The state of the schema. Changes nothing.
    pub async fn schema(&self) -> Result<SchemaState, StoreError> {
        self.database.schema().await
    }

    /// Refuses a schema that differs from this program's.
    pub async fn check_schema(&self) -> Result<(), StoreError> {
        self.database.check_schema().await
    }

    /// Has the database prepare every statement of this program. Names those that it refuses.
    pub async fn refused_statements(&self) -> Result<Vec<String>, StoreError> {
        self.database.refused_statements().await
    }

    /// How durable a commit is, as reported by the database.
    pub async fn durability(&self) -> Result<String, StoreError> {
        self.database.durability().await
    }

    /// Whether the store is a file that only this process has open.
    pub const fn is_embedded(&self) -> bool {
        matches!(self.database, Database::Sqlite(_))
    }

    /// The store's clock, if it is that of this process.
    pub fn own_clock(&self) -> Option<Arc<dyn Clock>> {
        self.is_embedded()
            .then(|| Arc::clone(self.database.shared().local_clock()))
    }

    /// A notifier across processes, if the database has one.
    pub fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        #[cfg(feature = "postgres")]
        if let Database::Postgres(database) = &self.database {
            return Some(Arc::new(database.notifier()));
        }
        None
    }

    /// Writes messages beside changes from now on. A policy from [`StoreOptions::outbox`] stays.
    pub fn write_messages(&self, policy: OutboxPolicy) {
        self.database.shared().write_messages(policy);
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.database.close().await;
    }

    /// Checks and runs an operation of the contract.
    async fn run<O: Operation>(
        &self,
        name: &'static str,
        operation: O,
    ) -> Result<O::Output, StoreError> {
        let mode = operation.mode(self.database.shared());
        let work = async {
            operation.check()?;
            let deadline = self.database.deadline();
            self.database.run_in(mode, deadline, operation).await
        };

        let is_update = mode != Mode::ReadOnly;
        self.observe(StoreOperation { name, is_update }, work).await
    }

    /// Runs the work and reports it to the observer.
    async fn observe<T>(
        &self,
        operation: StoreOperation,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let answer = work.await;
        if let Some(observer) = &self.observer {
            observer.observed(operation, began.elapsed(), answer.as_ref().err());
        }

        answer
    }

    /// Submits within the caller's sqlx transaction on the same PostgreSQL database. The tasks
    /// exist once the caller commits. A refused submit leaves nothing in the transaction. If the
    /// returned future is dropped early, roll the transaction back.
    #[cfg(feature = "postgres")]
    pub async fn submit_in_postgres(
        &self,
        transaction: &mut sqlx::PgConnection,
        tasks: &[NewTask],
    ) -> Result<Vec<Submitted>, StoreError> {
        submit::check(tasks)?;
        let Database::Postgres(database) = &self.database else {
            return Err(other_database("PostgreSQL"));
        };
        let deadline = self.database.deadline();
        let operation = submitter::prepare(&self.database, deadline, tasks.to_vec()).await?;
        database
            .within(transaction, &operation)
            .await
            .map_err(StoreError::from)
    }

    /// The same on MySQL and MariaDB.
    #[cfg(feature = "mysql")]
    pub async fn submit_in_mysql(
        &self,
        transaction: &mut sqlx::MySqlConnection,
        tasks: &[NewTask],
    ) -> Result<Vec<Submitted>, StoreError> {
        submit::check(tasks)?;
        let Database::MySql(database) = &self.database else {
            return Err(other_database("MySQL"));
        };
        let deadline = self.database.deadline();
        let operation = submitter::prepare(&self.database, deadline, tasks.to_vec()).await?;
        database
            .within(transaction, &operation)
            .await
            .map_err(StoreError::from)
    }

    /// The same on the same SQLite file. Begin with `BEGIN IMMEDIATE` and keep it short: the store
    /// cannot write while it is open.
    pub async fn submit_in_sqlite(
        &self,
        transaction: &mut sqlx::SqliteConnection,
        tasks: &[NewTask],
    ) -> Result<Vec<Submitted>, StoreError> {
        submit::check(tasks)?;
        let Some(database) = self.database.sqlite() else {
            return Err(other_database("SQLite"));
        };
        let operation = submitter::prepare_within(database, tasks.to_vec());
        database
            .within(transaction, &operation)
            .await
            .map_err(StoreError::from)
    }
}

/// Repeats only the scheme: the rest of a URL may hold a password.
fn no_driver(scheme: &str) -> Invalid {
    let feature = match scheme {
        "postgres" | "postgresql" => "postgres",
        "mysql" | "mariadb" => "mysql",
        _ => {
            let allowed = "sqlite://path/to/file.db, postgres://…, mysql://…";
            return Invalid::new(
                "the store's URL",
                format!("starts with {scheme:?}"),
                allowed,
            );
        }
    };

    Invalid::new(
        "the store's URL",
        format!("starts with {scheme:?}, and this program was built without a driver for that"),
        format!(
            "sqlite://path/to/file.db; for others, give longhaul the feature {feature:?} in \
             Cargo.toml"
        ),
    )
}

fn other_database(wanted: &str) -> StoreError {
    StoreError::Invalid(Invalid::new(
        "transaction",
        format!("is one of {wanted}"),
        "a transaction of the database that this store is on",
    ))
}
