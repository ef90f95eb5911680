//! One connection to the SQLite file, as the operations use it.

use std::sync::LazyLock;

use async_trait::async_trait;
use longhaul_domain::{
    Json, Status, Task, TaskId, Timestamp,
    contract::store::ClaimRequest,
    statistics::{Ending, Tally, TallySheet},
};
use serde::Serialize;
use sqlx::SqliteConnection;

use crate::{
    catalog::{SQLITE_CATALOG, SQLITE_DIALECT, Sql, Statement},
    chunks::ChunkedInsert,
    failure::Failure,
    ledger,
    operations::claim::{LaneStatements, claim_by_lanes},
    record::hex,
    row::{Param, SqlRow},
    session::{Completion, Session, Shared, Submission},
};

macro_rules! own {
    ($name:literal) => {
        SQLITE_DIALECT.sql($name, include_str!(concat!("sql/", $name, ".sql")))
    };
}

static INSERT: LazyLock<ChunkedInsert> =
    LazyLock::new(|| ChunkedInsert::new(&SQLITE_DIALECT, "insert_tasks", include_str!("sql/insert_tasks.sql")));
static LANES: LazyLock<Sql> = LazyLock::new(|| own!("claim_lanes"));
static PEEK: LazyLock<Sql> = LazyLock::new(|| own!("claim_peek"));
static PICK: LazyLock<Sql> = LazyLock::new(|| own!("claim_pick"));
static TAKE: LazyLock<Sql> = LazyLock::new(|| own!("claim_take"));
static COMPLETE: LazyLock<Sql> = LazyLock::new(|| own!("complete_tasks"));

/// Every statement that this database is ever sent.
pub(super) fn statements() -> impl Iterator<Item = &'static Sql> {
    let own = [&*LANES, &*PEEK, &*PICK, &*TAKE, &*COMPLETE];
    SQLITE_CATALOG.iter().chain(own).chain(INSERT.statements())
}

/// A connection, inside or outside a transaction.
pub(super) struct SqliteSession<'c> {
    connection: &'c mut SqliteConnection,
    shared: &'c Shared,
    /// One moment for the whole operation.
    now: i64,
}

type SqliteQuery<'q> = sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

impl<'c> SqliteSession<'c> {
    pub(super) fn new(connection: &'c mut SqliteConnection, shared: &'c Shared) -> Self {
        let now = shared.local_now().as_micros();
        Self { connection, shared, now }
    }
}

fn bind<'q>(sql: &'static Sql, params: &'q [Param<'_>]) -> SqliteQuery<'q> {
    params.iter().fold(sqlx::query(super::text(sql)), |query, param| match *param {
        Param::Int(value) => query.bind(value),
        Param::Text(value) => query.bind(value.map(str::to_owned)),
        Param::Id(value) => query.bind(value.map(|id| id.as_bytes().to_vec())),
    })
}

/// A result as `complete_tasks` takes it.
#[derive(Serialize)]
struct CompletionRow<'a> {
    id: String,
    attempt: u32,
    token: String,
    result: Option<&'a str>,
    result_url: Option<&'a str>,
}

impl<'a> CompletionRow<'a> {
    fn new(done: &Completion<'a>) -> Self {
        let Completion { lease, result, result_url } = *done;
        Self { id: hex(lease.task_id.0), attempt: lease.attempt, token: hex(lease.token.0), result, result_url }
    }
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

    async fn execute_sql(&mut self, sql: &'static Sql, params: &[Param<'_>]) -> Result<u64, Failure> {
        Ok(bind(sql, params).execute(&mut *self.connection).await?.rows_affected())
    }

    async fn fetch_sql(&mut self, sql: &'static Sql, params: &[Param<'_>]) -> Result<Vec<SqlRow>, Failure> {
        let rows = bind(sql, params).fetch_all(&mut *self.connection).await?;
        Ok(rows.into_iter().map(SqlRow::Sqlite).collect())
    }

    async fn insert_tasks(&mut self, tasks: &[Submission<'_>], tallies: &[Tally]) -> Result<(), Failure> {
        for (sql, chunk) in INSERT.chunks(tasks) {
            let mut query = sqlx::query(super::text(sql));
            for submission in chunk {
                query = bind_submission(query, submission, self.now)?;
            }
            query.execute(&mut *self.connection).await?;
        }
        ledger::insert_tallies(self, tallies).await
    }

    async fn claim_tasks(&mut self, request: &ClaimRequest) -> Result<Vec<Task>, Failure> {
        let own = LaneStatements { lanes: &LANES, peek: &PEEK, pick: &PICK, take: &TAKE };
        claim_by_lanes(self, &own, request).await
    }

    async fn complete_tasks(&mut self, completions: &[Completion<'_>]) -> Result<Vec<TaskId>, Failure> {
        let document = serde_json::to_string(&completions.iter().map(CompletionRow::new).collect::<Vec<_>>())?;
        let rows = self.fetch_sql(&COMPLETE, &[self.now.into(), (&document).into()]).await?;
        let mut sheet = TallySheet::default();
        let mut ended = Vec::with_capacity(rows.len());
        for row in &rows {
            ended.push(TaskId(row.must_id(0)?));
            count_completed(&mut sheet, row)?;
        }
        ledger::insert_tallies(self, &sheet.into_tallies()).await?;
        Ok(ended)
    }

    async fn now(&mut self) -> Result<Timestamp, Failure> {
        Ok(Timestamp::from_micros(self.now))
    }
}

/// Counts a row that `complete_tasks` returned.
fn count_completed(sheet: &mut TallySheet, row: &SqlRow) -> Result<(), Failure> {
    let (queue, task_type) = (row.must_text(1)?, row.must_text(2)?);
    let ending = Ending {
        status: Status::Completed,
        attempt: u32::try_from(row.must_int(3)?).unwrap_or(u32::MAX),
        due_at: Timestamp::from_micros(row.must_int(4)?),
        last_attempt_at: row.int(5)?.map(Timestamp::from_micros),
        finished_at: Timestamp::from_micros(row.must_int(6)?),
    };
    sheet.count(&queue, &task_type, Status::Running, -1);
    sheet.count(&queue, &task_type, Status::Completed, 1);
    sheet.record_end(&ending, &queue, &task_type);
    Ok(())
}

fn bind_submission<'q>(
    query: SqliteQuery<'q>,
    submission: &Submission<'_>,
    now: i64,
) -> Result<SqliteQuery<'q>, Failure> {
    let task = submission.task;
    let (run_at, delay_us) = submission.run_time();
    let deadline = task.deadline_at.map(Timestamp::as_micros);
    Ok(query
        .bind(submission.id.0.as_bytes().to_vec())
        .bind(task.parent.map(|lease| lease.task_id.0.as_bytes().to_vec()))
        .bind(task.owner.clone())
        .bind(task.tier.clone())
        .bind(task.task_type.clone())
        .bind(task.task_key.clone())
        .bind(task.queue.clone())
        .bind(i64::from(task.priority))
        .bind(submission.lane)
        .bind(now)
        .bind(now)
        .bind(run_at.unwrap_or(now + delay_us))
        .bind(i64::from(task.max_attempts))
        .bind(task.timeout_ms.and_then(|ms| i64::try_from(ms).ok()))
        .bind(deadline)
        .bind(deadline)
        .bind(task.finish_step)
        .bind(submission.policy_text()?)
        .bind(task.parameters.as_str().to_owned())
        .bind(task.memo.as_ref().map(|memo| Json::as_str(memo).to_owned()))
        .bind(task.correlation_id.clone())
        .bind(task.trace_context.clone()))
}
