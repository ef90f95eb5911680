//! One connection to the SQLite file, as the operations use it.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use async_trait::async_trait;
use longhaul_domain::{Json, Task, TaskId, Timestamp, contract::store::ClaimRequest, statistics::Tally};
use serde::Serialize;
use sqlx::SqliteConnection;
use uuid::Uuid;

use crate::{
    catalog::{SQLITE_CATALOG, SQLITE_DIALECT, Sql, Statement},
    chunks::ChunkedInsert,
    failure::Failure,
    ledger,
    operations::{
        claim::{LaneStatements, claim_by_lanes},
        finish::{completion_document, count_ended},
    },
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
static FIND: LazyLock<Sql> = LazyLock::new(|| own!("complete_find"));
static COMPLETE: LazyLock<Sql> = LazyLock::new(|| own!("complete_tasks"));

/// Results in one update. Each row looks its result up among all that came with it, one after the other.
const RESULTS_AT_ONCE: usize = 100;

/// Every statement that this database is ever sent.
pub(crate) fn statements() -> impl Iterator<Item = &'static Sql> {
    let own = [&*LANES, &*PEEK, &*PICK, &*TAKE, &*FIND, &*COMPLETE];
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
        match sql.packed {
            true => SqlRow::unpack(rows.first()),
            false => Ok(rows.into_iter().map(SqlRow::Sqlite).collect()),
        }
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
        let document = completion_document(completions)?;
        let rows = self.fetch_sql(&FIND, &[self.now.into(), (&document).into()]).await?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let mut updated = 0;
        for chunk in rows.chunks(RESULTS_AT_ONCE) {
            let (keys, results) = results_by_row(chunk, completions)?;
            updated += self.execute_sql(&COMPLETE, &[self.now.into(), (&keys).into(), (&results).into()]).await?;
        }
        count_ended(self, &rows, updated).await
    }

    async fn now(&mut self) -> Result<Timestamp, Failure> {
        Ok(Timestamp::from_micros(self.now))
    }
}

/// The row numbers that `complete_find` found, and the results by row number.
fn results_by_row(rows: &[SqlRow], completions: &[Completion<'_>]) -> Result<(String, String), Failure> {
    #[derive(Serialize)]
    struct Given<'a> {
        r: Option<&'a str>,
        u: Option<&'a str>,
    }
    let given: HashMap<Uuid, &Completion<'_>> = completions.iter().map(|done| (done.lease.task_id.0, done)).collect();
    let mut numbers = Vec::with_capacity(rows.len());
    let mut results = BTreeMap::new();
    for row in rows {
        let number = row.must_int(7)?;
        let done = given.get(&row.must_id(0)?).ok_or_else(|| Failure::internal("a task that nobody reported"))?;
        numbers.push(number);
        results.insert(number.to_string(), Given { r: done.result, u: done.result_url });
    }
    Ok((serde_json::to_string(&numbers)?, serde_json::to_string(&results)?))
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
