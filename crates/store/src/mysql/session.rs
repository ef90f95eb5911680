//! One connection to MySQL or MariaDB, as the operations use it.

use std::collections::HashMap;
use std::sync::LazyLock;

use async_trait::async_trait;
use longhaul_domain::{
    Lease, LeaseToken, Status, TaskId, TaskRecord, Timestamp,
    contract::store::{ClaimNamed, ClaimRequest},
    statistics::{CountSheet, EndedTask, TaskCount},
};
use sqlx::MySqlConnection;

use super::claim;
use crate::{
    bounds::Moves,
    catalog::{MYSQL_CATALOG, MYSQL_DIALECT, Sql, Statement},
    chunks::Chunked,
    effects,
    row::{Columns as _, Param, SqlRow},
    session::{Completion, Session, Shared, Submission},
    sql_error::SqlError,
    task_columns::plain_params,
};

macro_rules! chunked {
    ($name:literal) => {
        LazyLock::new(|| {
            Chunked::new(
                &MYSQL_DIALECT,
                $name,
                include_str!(concat!("sql/", $name, ".sql")),
            )
        })
    };
}

static INSERT: LazyLock<Chunked> = chunked!("insert_tasks");
static APPEND: LazyLock<Chunked> = chunked!("append_task_counts");
static FIND: LazyLock<Chunked> = chunked!("complete_find");
static COMPLETE: LazyLock<Chunked> = chunked!("complete_tasks");

/// Every statement that the store sends to this database.
pub(crate) fn statements() -> impl Iterator<Item = &'static Sql> {
    let own = [&*INSERT, &*APPEND, &*FIND, &*COMPLETE]
        .into_iter()
        .flat_map(Chunked::statements);
    MYSQL_CATALOG.iter().chain(claim::statements()).chain(own)
}

/// A connection, inside or outside a transaction.
pub(super) struct MySqlSession<'c> {
    connection: &'c mut MySqlConnection,
    shared: &'c Shared,
    pub(super) moves: Moves,
}

type MySqlQuery<'q> = sqlx::query::Query<'q, sqlx::MySql, sqlx::mysql::MySqlArguments>;

impl<'c> MySqlSession<'c> {
    pub(super) fn new(connection: &'c mut MySqlConnection, shared: &'c Shared) -> Self {
        Self {
            connection,
            shared,
            moves: Moves::default(),
        }
    }

    pub(super) fn into_moves(self) -> Moves {
        self.moves
    }

    pub(super) fn connection(&mut self) -> &mut MySqlConnection {
        self.connection
    }
}

fn bind<'q>(sql: &'static Sql, params: &'q [Param<'_>]) -> MySqlQuery<'q> {
    let order = sql.order.as_deref().unwrap_or_default();
    order
        .iter()
        .fold(sqlx::query(super::text(sql)), |query, position| {
            bind_param(query, params[*position])
        })
}

fn bind_param<'q>(query: MySqlQuery<'q>, param: Param<'_>) -> MySqlQuery<'q> {
    match param {
        Param::Int(value) => query.bind(value),
        Param::Text(value) => query.bind(value.map(str::to_owned)),
        Param::Id(value) => query.bind(value.map(|id| id.as_bytes().to_vec())),
    }
}

#[async_trait]
impl Session for MySqlSession<'_> {
    fn shared(&self) -> &Shared {
        self.shared
    }

    fn clock(&self) -> i64 {
        self.shared
            .offset
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    fn sql(&self, statement: Statement) -> &'static Sql {
        &MYSQL_CATALOG[statement as usize]
    }

    fn note_requeued(&mut self, lane: i64, due_at: i64) {
        self.moves.requeued(lane, due_at);
    }

    async fn execute_sql(
        &mut self,
        sql: &'static Sql,
        params: &[Param<'_>],
    ) -> Result<u64, SqlError> {
        Ok(bind(sql, params)
            .execute(&mut *self.connection)
            .await?
            .rows_affected())
    }

    async fn fetch_sql(
        &mut self,
        sql: &'static Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<SqlRow>, SqlError> {
        let rows = bind(sql, params).fetch_all(&mut *self.connection).await?;
        Ok(rows.into_iter().map(SqlRow::MySql).collect())
    }

    async fn insert_tasks(
        &mut self,
        tasks: &[Submission<'_>],
        task_counts: &[TaskCount],
    ) -> Result<(), SqlError> {
        for (sql, chunk) in INSERT.chunks(tasks) {
            let mut query = sqlx::query(super::text(sql));
            for submission in chunk {
                query = bind_submission(query, submission, self.clock());
            }
            query.execute(&mut *self.connection).await?;
        }

        effects::insert_task_counts(self, task_counts).await
    }

    async fn append_task_counts(&mut self, task_counts: &[TaskCount]) -> Result<(), SqlError> {
        for (sql, chunk) in APPEND.chunks(task_counts) {
            let mut query = sqlx::query(super::text(sql));
            for TaskCount { key, n } in chunk {
                query = query
                    .bind(key.span_start)
                    .bind(&key.queue)
                    .bind(&key.task_type)
                    .bind(key.measure.as_str());
                query = query.bind(&key.label).bind(key.bucket).bind(n);
            }

            query.execute(&mut *self.connection).await?;
        }

        Ok(())
    }

    async fn claim_tasks(&mut self, request: &ClaimRequest) -> Result<Vec<TaskRecord>, SqlError> {
        claim::claim_tasks(self, request).await
    }

    async fn claim_named(&mut self, request: &ClaimNamed) -> Result<Vec<TaskRecord>, SqlError> {
        claim::claim_named(self, request).await
    }

    async fn complete_tasks(
        &mut self,
        completions: &[Completion<'_>],
    ) -> Result<Vec<TaskId>, SqlError> {
        // Results with an address are rare and take the longer way.
        let mut plain: Vec<&Completion<'_>> = completions
            .iter()
            .filter(|done| done.result_url.is_none())
            .collect();

        // Rows are locked in the order of their ids, which avoids deadlocks.
        plain.sort_unstable_by_key(|done| done.lease.task_id);
        let mut sheet = CountSheet::default();
        let mut ended = Vec::with_capacity(plain.len());

        for (sql, chunk) in FIND.filled(&plain) {
            let query = sqlx::query(super::text(sql)).bind(self.clock());
            let rows = bind_ids(query, &chunk)
                .fetch_all(&mut *self.connection)
                .await?;
            let found = rows
                .into_iter()
                .map(|row| Found::from_row(&SqlRow::MySql(row)));
            let mut found = found.collect::<Result<HashMap<_, _>, _>>()?;

            for done in chunk {
                // A row that pads the chunk has been handled before.
                let Some(found) = found.remove(&done.lease) else {
                    continue;
                };
                ended.push((done, found));
            }
        }

        let Some(now) = ended.iter().map(|(_, found)| found.at).max() else {
            return Ok(Vec::new());
        };
        for (done, found) in &ended {
            sheet.end_running(
                &found.ending(done.lease.attempt, now),
                &found.queue,
                &found.task_type,
            );
        }

        let done: Vec<&Completion<'_>> = ended.iter().map(|(done, _)| *done).collect();
        self.complete(&done, now).await?;
        effects::insert_task_counts(self, &sheet.into_task_counts()).await?;
        Ok(done.into_iter().map(|done| done.lease.task_id).collect())
    }
}

impl MySqlSession<'_> {
    /// Ends tasks whose rows are locked.
    async fn complete(&mut self, ended: &[&Completion<'_>], now: i64) -> Result<(), SqlError> {
        let mut updated = 0;
        for (sql, chunk) in COMPLETE.filled(ended) {
            let mut query = bind_ids(sqlx::query(super::text(sql)), &chunk);
            let mut last = None;
            for done in &chunk {
                // A row that pads the chunk repeats the last id. The statement uses the first
                // match, so the result is sent once.
                let is_new = last.replace(done.lease.task_id) != Some(done.lease.task_id);
                query = query.bind(if is_new { done.result } else { None });
            }

            let query = bind_ids(query.bind(now).bind(now), &chunk);
            updated += query.execute(&mut *self.connection).await?.rows_affected();
        }

        match updated == ended.len() as u64 {
            true => Ok(()),
            false => Err(SqlError::LostRace(format!(
                "{updated} of {} tasks were completed",
                ended.len()
            ))),
        }
    }
}

/// A task that a completion can end the short way.
struct Found {
    queue: String,
    task_type: String,
    waits_since: Timestamp,
    last_attempt_at: Option<Timestamp>,
    updated_at: i64,
    /// The server's time of the search.
    at: i64,
}

impl Found {
    /// Reads the lease and the task from a row of `complete_find`.
    fn from_row(row: &SqlRow) -> Result<(Lease, Self), SqlError> {
        let attempt = u32::try_from(row.must_int(1)?).map_err(SqlError::internal)?;
        let lease = Lease {
            task_id: TaskId(row.must_id(0)?),
            attempt,
            token: LeaseToken(row.must_id(2)?),
        };

        let found = Self {
            queue: row.must_text(3)?,
            task_type: row.must_text(4)?,
            waits_since: Timestamp::from_micros(row.must_int(5)?),
            last_attempt_at: row.int(6)?.map(Timestamp::from_micros),
            updated_at: row.must_int(7)?,
            at: row.must_int(8)?,
        };
        Ok((lease, found))
    }

    /// Its end at `now`, with the same time as in `complete_tasks`.
    fn ending(&self, attempt: u32, now: i64) -> EndedTask {
        EndedTask {
            status: Status::Completed,
            attempt,
            waits_since: self.waits_since,
            last_attempt_at: self.last_attempt_at,
            finished_at: Timestamp::from_micros(now.max(self.updated_at)),
        }
    }
}

fn bind_ids<'q>(query: MySqlQuery<'q>, chunk: &[&Completion<'_>]) -> MySqlQuery<'q> {
    chunk.iter().fold(query, |query, done| {
        query.bind(done.lease.task_id.0.as_bytes().to_vec())
    })
}

/// The parameters of one row of `insert_tasks`.
fn bind_submission<'q>(
    query: MySqlQuery<'q>,
    submission: &Submission<'_>,
    clock: i64,
) -> MySqlQuery<'q> {
    let task = submission.task;
    let (run_at, delay_us) = submission.run_time();
    let query = query
        .bind(submission.id.0.as_bytes().to_vec())
        .bind(task.task_key.clone())
        .bind(submission.lane)
        .bind(clock)
        .bind(clock);
    let query = query
        .bind(run_at)
        .bind(clock + delay_us)
        .bind(task.deadline_at.map(Timestamp::as_micros))
        .bind(task.parameters.as_str().to_owned());

    plain_params(submission).fold(query, bind_param)
}
