//! One of the store's connections to the SQLite file, as the operations use it.

use std::sync::LazyLock;

use async_trait::async_trait;
use futures::FutureExt as _;
use longhaul_domain::{
    Lease, Status, TaskId, TaskRecord, Timestamp,
    contract::store::{ClaimNamed, ClaimRequest},
    statistics::{CountSheet, EndedTask, TaskCount},
};
use rusqlite::{
    CachedStatement, Connection,
    types::{ToSqlOutput, Value, ValueRef},
};

use super::claim;
use crate::{
    catalog::{SQLITE_CATALOG, SQLITE_DIALECT, Sql, Statement},
    chunks::Chunked,
    effects,
    row::{Columns as _, Param, SqlRow},
    session::{Completion, Session, Shared, Submission},
    sql_error::SqlError,
    task_columns::plain_params,
};

pub(super) static INSERT: LazyLock<Chunked> = LazyLock::new(|| {
    Chunked::new(
        &SQLITE_DIALECT,
        "insert_tasks",
        include_str!("sql/insert_tasks.sql"),
    )
});
static ALIKE: LazyLock<Chunked> = LazyLock::new(|| {
    Chunked::new(
        &SQLITE_DIALECT,
        "insert_alike",
        include_str!("sql/insert_alike.sql"),
    )
});
static FIND: LazyLock<Sql> =
    LazyLock::new(|| SQLITE_DIALECT.sql("complete_find", include_str!("sql/complete_find.sql")));
static COMPLETE: LazyLock<Sql> =
    LazyLock::new(|| SQLITE_DIALECT.sql("complete_tasks", include_str!("sql/complete_tasks.sql")));

/// Every statement that the store sends to this database.
pub(crate) fn statements() -> impl Iterator<Item = &'static Sql> {
    SQLITE_CATALOG
        .iter()
        .chain(claim::statements())
        .chain([&*FIND, &*COMPLETE])
        .chain(INSERT.statements())
        .chain(ALIKE.statements())
}

/// Runs an operation that uses SQLite sessions only. They answer at once, so it never waits.
pub(super) fn at_once<T>(work: impl Future<Output = Result<T, SqlError>>) -> Result<T, SqlError> {
    work.now_or_never().unwrap_or_else(|| {
        Err(SqlError::internal(
            "an operation on SQLite waited for something else",
        ))
    })
}

/// A connection, inside or outside a transaction.
pub(super) struct SqliteSession<'c> {
    connection: &'c mut Connection,
    shared: &'c Shared,
    /// The time of the whole operation.
    now: i64,
}

impl<'c> SqliteSession<'c> {
    pub(super) fn new(connection: &'c mut Connection, shared: &'c Shared) -> Self {
        let now = shared.local_now().as_micros();
        Self {
            connection,
            shared,
            now,
        }
    }

    /// A statement from the connection's cache.
    pub(super) fn prepared(&self, sql: &'static Sql) -> Result<CachedStatement<'_>, SqlError> {
        Ok(self.connection.prepare_cached(&sql.text)?)
    }

    fn insert_alike(
        &self,
        first: &Submission<'_>,
        tasks: &[Submission<'_>],
    ) -> Result<(), SqlError> {
        for (sql, chunk) in ALIKE.chunks(tasks) {
            let mut insert = self.prepared(sql)?;
            let common = [self.now.into(), first.lane.into()];
            let mut next = bind_from(&mut insert, 1, common)?;
            next = bind_from(&mut insert, next, plain_params(first))?;
            for submission in chunk {
                next = bind_from(&mut insert, next, own(submission, self.now))?;
            }

            insert.raw_execute()?;
        }

        Ok(())
    }

    fn insert_mixed(&self, tasks: &[Submission<'_>]) -> Result<(), SqlError> {
        for (sql, chunk) in INSERT.chunks(tasks) {
            let mut insert = self.prepared(sql)?;
            let mut next = 1;
            for submission in chunk {
                next = bind_from(&mut insert, next, inserted(submission, self.now))?;
            }
            insert.raw_execute()?;
        }

        Ok(())
    }
}

/// Runs a statement with these parameters.
pub(super) fn execute(
    statement: &mut CachedStatement<'_>,
    params: &[Param<'_>],
) -> Result<u64, SqlError> {
    bind(statement, params)?;
    Ok(statement.raw_execute()? as u64)
}

pub(super) fn bind(
    statement: &mut CachedStatement<'_>,
    params: &[Param<'_>],
) -> Result<(), SqlError> {
    bind_from(statement, 1, params.iter().copied())?;
    Ok(())
}

/// Binds parameters from this number on. Returns the number after them.
fn bind_from<'p>(
    statement: &mut CachedStatement<'_>,
    first: usize,
    params: impl IntoIterator<Item = Param<'p>>,
) -> Result<usize, SqlError> {
    let mut number = first;
    for param in params {
        let value = match &param {
            Param::Int(value) => value.map_or(ValueRef::Null, ValueRef::Integer),
            Param::Text(value) => {
                value.map_or(ValueRef::Null, |text| ValueRef::Text(text.as_bytes()))
            }
            Param::Id(value) => value
                .as_ref()
                .map_or(ValueRef::Null, |id| ValueRef::Blob(id.as_bytes())),
        };

        statement.raw_bind_parameter(number, ToSqlOutput::Borrowed(value))?;
        number += 1;
    }

    Ok(number)
}

/// The rows of a statement with these parameters.
fn fetch(
    statement: &mut CachedStatement<'_>,
    params: &[Param<'_>],
) -> Result<Vec<SqlRow>, SqlError> {
    bind(statement, params)?;
    let columns = statement.column_count();
    let mut rows = statement.raw_query();
    let mut fetched = Vec::new();

    while let Some(row) = rows.next()? {
        let values = (0..columns)
            .map(|column| row.get(column))
            .collect::<Result<Vec<Value>, _>>()?;
        fetched.push(SqlRow::Sqlite(values));
    }

    Ok(fetched)
}

#[async_trait]
impl Session for SqliteSession<'_> {
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
        execute(&mut self.prepared(sql)?, params)
    }

    async fn fetch_sql(
        &mut self,
        sql: &'static Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<SqlRow>, SqlError> {
        fetch(&mut self.prepared(sql)?, params)
    }

    async fn insert_tasks(
        &mut self,
        tasks: &[Submission<'_>],
        task_counts: &[TaskCount],
    ) -> Result<(), SqlError> {
        match Submission::shared(tasks) {
            Some(first) => self.insert_alike(first, tasks)?,
            None => self.insert_mixed(tasks)?,
        }
        effects::insert_task_counts(self, task_counts).await
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
        let mut sheet = CountSheet::default();
        let mut ended = Vec::with_capacity(completions.len());

        // The statements borrow the session, which the counts need below.
        {
            let mut find = self.prepared(&FIND)?;
            let mut complete = self.prepared(&COMPLETE)?;
            for done in completions {
                let Some(number) = count_found(&mut find, &done.lease, self.now, &mut sheet)?
                else {
                    continue;
                };

                let result = Param::Text(done.result);
                let url = Param::Text(done.result_url);
                execute(
                    &mut complete,
                    &[self.now.into(), number.into(), result, url],
                )?;
                ended.push(done.lease.task_id);
            }
        }

        effects::insert_task_counts(self, &sheet.into_task_counts()).await?;
        Ok(ended)
    }

    async fn now(&mut self) -> Result<Timestamp, SqlError> {
        Ok(Timestamp::from_micros(self.now))
    }
}

/// Counts the end of the task under this lease and returns its row number. `None` if the short way
/// does not apply.
fn count_found(
    find: &mut CachedStatement<'_>,
    lease: &Lease,
    now: i64,
    sheet: &mut CountSheet,
) -> Result<Option<i64>, SqlError> {
    bind(
        find,
        &[
            lease.task_id.0.into(),
            i64::from(lease.attempt).into(),
            lease.token.0.into(),
        ],
    )?;

    let mut rows = find.raw_query();
    let Some(row) = rows.next()? else {
        return Ok(None);
    };

    let ending = EndedTask {
        status: Status::Completed,
        attempt: lease.attempt,
        waits_since: Timestamp::from_micros(row.must_int(3)?),
        last_attempt_at: row.int(4)?.map(Timestamp::from_micros),
        finished_at: Timestamp::from_micros(now.max(row.must_int(5)?)),
    };

    let name = |column| row.get_ref(column)?.as_str().map_err(SqlError::internal);
    sheet.end_running(&ending, name(1)?, name(2)?);
    Ok(Some(row.must_int(0)?))
}

/// The parameters of one row of `insert_tasks`.
pub(super) fn inserted<'s>(
    submission: &'s Submission<'_>,
    now: i64,
) -> impl Iterator<Item = Param<'s>> {
    let task = submission.task;
    let [id, task_key, due_at, parameters] = own(submission, now);
    let own = [
        id,
        task_key,
        submission.lane.into(),
        now.into(),
        now.into(),
        due_at,
        Param::Int(task.deadline_at.map(Timestamp::as_micros)),
        parameters,
    ];

    own.into_iter().chain(plain_params(submission))
}

/// The parameters of `insert_alike` for each task.
fn own<'s>(submission: &'s Submission<'_>, now: i64) -> [Param<'s>; 4] {
    let task = submission.task;
    let (run_at, delay_us) = submission.run_time();
    [
        submission.id.0.into(),
        Param::Text(task.task_key.as_deref()),
        run_at.unwrap_or(now + delay_us).into(),
        task.parameters.as_str().into(),
    ]
}
