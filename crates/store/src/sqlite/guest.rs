//! A caller's own sqlx transaction on the same file. It can submit tasks and do nothing else.

use async_trait::async_trait;
use longhaul_domain::{
    TaskId, TaskRecord, Timestamp,
    contract::store::{ClaimNamed, ClaimRequest},
    statistics::TaskCount,
};
use sqlx::SqliteConnection;

use super::session::{INSERT, inserted};
use crate::{
    catalog::{SQLITE_CATALOG, Sql, Statement},
    effects,
    row::{Param, SqlRow},
    session::{Completion, Session, Shared, Submission},
    sql_error::SqlError,
};

/// The caller's connection.
pub(super) struct GuestSession<'c> {
    connection: &'c mut SqliteConnection,
    shared: &'c Shared,
    now: i64,
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

impl<'c> GuestSession<'c> {
    pub(super) fn new(connection: &'c mut SqliteConnection, shared: &'c Shared) -> Self {
        let now = shared.local_now().as_micros();
        Self {
            connection,
            shared,
            now,
        }
    }
}

fn bind<'q>(sql: &'static Sql, params: impl IntoIterator<Item = Param<'q>>) -> Query<'q> {
    let query = sqlx::query(sqlx::SqlSafeStr::into_sql_str(sql.text.as_str()));
    params.into_iter().fold(query, |query, param| match param {
        Param::Int(value) => query.bind(value),
        Param::Text(value) => query.bind(value.map(str::to_owned)),
        Param::Id(value) => query.bind(value.map(|id| id.as_bytes().to_vec())),
    })
}

#[async_trait]
impl Session for GuestSession<'_> {
    fn shared(&self) -> &Shared {
        self.shared
    }

    fn clock(&self) -> i64 {
        self.now
    }

    fn sql(&self, statement: Statement) -> &'static Sql {
        &SQLITE_CATALOG[statement as usize]
    }

    async fn execute_sql(
        &mut self,
        sql: &'static Sql,
        params: &[Param<'_>],
    ) -> Result<u64, SqlError> {
        Ok(bind(sql, params.iter().copied())
            .execute(&mut *self.connection)
            .await?
            .rows_affected())
    }

    async fn fetch_sql(
        &mut self,
        sql: &'static Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<SqlRow>, SqlError> {
        let rows = bind(sql, params.iter().copied())
            .fetch_all(&mut *self.connection)
            .await?;
        Ok(rows.into_iter().map(SqlRow::Guest).collect())
    }

    async fn insert_tasks(
        &mut self,
        tasks: &[Submission<'_>],
        task_counts: &[TaskCount],
    ) -> Result<(), SqlError> {
        for (sql, chunk) in INSERT.chunks(tasks) {
            let params = chunk
                .iter()
                .flat_map(|submission| inserted(submission, self.now));
            bind(sql, params).execute(&mut *self.connection).await?;
        }

        effects::insert_task_counts(self, task_counts).await
    }

    async fn claim_tasks(&mut self, _request: &ClaimRequest) -> Result<Vec<TaskRecord>, SqlError> {
        Err(only_submits())
    }

    async fn claim_named(&mut self, _request: &ClaimNamed) -> Result<Vec<TaskRecord>, SqlError> {
        Err(only_submits())
    }

    async fn complete_tasks(
        &mut self,
        _completions: &[Completion<'_>],
    ) -> Result<Vec<TaskId>, SqlError> {
        Err(only_submits())
    }

    async fn now(&mut self) -> Result<Timestamp, SqlError> {
        Ok(Timestamp::from_micros(self.now))
    }
}

fn only_submits() -> SqlError {
    SqlError::internal("a caller's own transaction is for submitting")
}
