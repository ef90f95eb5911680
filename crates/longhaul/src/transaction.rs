//! Caller-owned transactions on the three databases.

use futures::future::BoxFuture;
use longhaul_domain::{NewTask, StoreError, contract::store::Submitted};
use longhaul_store::SqlStore;

/// An open transaction on Longhaul's database.
pub trait CallersTransaction: Send {
    /// Submits in this transaction, all or none.
    fn submit<'a>(
        &'a mut self,
        store: &'a SqlStore,
        tasks: Vec<NewTask>,
    ) -> BoxFuture<'a, Result<Vec<Submitted>, StoreError>>;
}

macro_rules! callers_transaction {
    ($database:ty, $submit:ident) => {
        impl CallersTransaction for sqlx::Transaction<'_, $database> {
            fn submit<'a>(
                &'a mut self,
                store: &'a SqlStore,
                tasks: Vec<NewTask>,
            ) -> BoxFuture<'a, Result<Vec<Submitted>, StoreError>> {
                Box::pin(async move { store.$submit(&mut *self, &tasks).await })
            }
        }
    };
}

#[cfg(feature = "postgres")]
callers_transaction!(sqlx::Postgres, submit_in_postgres);
#[cfg(feature = "mysql")]
callers_transaction!(sqlx::MySql, submit_in_mysql);
callers_transaction!(sqlx::Sqlite, submit_in_sqlite);
