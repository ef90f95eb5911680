//! Submits within a transaction of the caller, on the three databases.

use futures::future::BoxFuture;
use longhaul_domain::{NewTask, StoreError, contract::store::Submitted};
use longhaul_sdk::{Handle, Kind, Submission};
use longhaul_store::SqlStore;

use crate::{Longhaul, facade::new_tasks};

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

impl Longhaul {
    /// Submits within the caller's open transaction on the same database: task and business data
    /// commit or vanish together. Workers find the task at their next poll, or at once after
    /// [`Self::wake`]. This process does not see the commit, so `on_queued` is not called. On
    /// SQLite, begin the transaction with `BEGIN IMMEDIATE` if it reads first.
    pub async fn submit_in<K: Kind>(
        &self,
        transaction: &mut impl CallersTransaction,
        submission: Submission<K>,
    ) -> Result<Handle<K>, StoreError> {
        let mut handles = self.submit_all_in(transaction, [submission]).await?;
        handles
            .pop()
            .ok_or_else(|| StoreError::Internal("a submit answered with no task".to_owned()))
    }

    /// The same for many tasks, in order.
    pub async fn submit_all_in<K: Kind>(
        &self,
        transaction: &mut impl CallersTransaction,
        submissions: impl IntoIterator<Item = Submission<K>>,
    ) -> Result<Vec<Handle<K>>, StoreError> {
        let tasks = new_tasks(submissions).await?;
        let no_database =
            || StoreError::Internal("this store has no transactions to join".to_owned());
        let submitted = transaction
            .submit(self.sql.as_ref().ok_or_else(no_database)?, tasks)
            .await?;
        Ok(self.handles(&submitted))
    }
}
