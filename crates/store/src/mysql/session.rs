//! One connection to MySQL or MariaDB, as the operations use it.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use async_trait::async_trait;
use longhaul_domain::{
    Json, Task, TaskId, Timestamp,
    contract::store::{ClaimNamed, ClaimRequest},
    statistics::Tally,
};
use sqlx::MySqlConnection;

use crate::{
    catalog::{MYSQL_CATALOG, MYSQL_DIALECT, Sql, Statement},
    chunks::ChunkedInsert,
    failure::Failure,
    ledger,
    operations::{
        claim::{Claimant, LaneLook, LaneStatements, Picked, claim_by_lanes, take},
        finish::{completion_document, count_ended},
    },
    record::hex_list,
    row::{Columns as _, Param, SqlRow},
    session::{Completion, Session, Shared, Submission},
};

macro_rules! own {
    ($name:literal) => {
        MYSQL_DIALECT.sql($name, include_str!(concat!("sql/", $name, ".sql")))
    };
}

static INSERT: LazyLock<ChunkedInsert> =
    LazyLock::new(|| ChunkedInsert::new(&MYSQL_DIALECT, "insert_tasks", include_str!("sql/insert_tasks.sql")));
static APPEND: LazyLock<ChunkedInsert> =
    LazyLock::new(|| ChunkedInsert::new(&MYSQL_DIALECT, "append_tallies", include_str!("sql/append_tallies.sql")));
static LANES: LazyLock<Sql> = LazyLock::new(|| own!("claim_lanes"));
static PEEK: LazyLock<Sql> = LazyLock::new(|| own!("claim_peek"));
static PICK: LazyLock<Sql> = LazyLock::new(|| own!("claim_pick"));
static TAKE: LazyLock<Sql> = LazyLock::new(|| own!("claim_take"));
static NAMED_FIND: LazyLock<Sql> = LazyLock::new(|| own!("named_find"));
static NAMED_PICK: LazyLock<Sql> = LazyLock::new(|| own!("named_pick"));
static FIND: LazyLock<Sql> = LazyLock::new(|| own!("complete_find"));
static COMPLETE: LazyLock<Sql> = LazyLock::new(|| own!("complete_tasks"));

/// Every statement that this database is ever sent.
pub(crate) fn statements() -> impl Iterator<Item = &'static Sql> {
    let own = [&*LANES, &*PEEK, &*PICK, &*TAKE, &*NAMED_FIND, &*NAMED_PICK, &*FIND, &*COMPLETE];
    MYSQL_CATALOG.iter().chain(own).chain(INSERT.statements()).chain(APPEND.statements())
}

/// A connection, inside or outside a transaction.
pub(super) struct MySqlSession<'c> {
    connection: &'c mut MySqlConnection,
    shared: &'c Shared,
}

type MySqlQuery<'q> = sqlx::query::Query<'q, sqlx::MySql, sqlx::mysql::MySqlArguments>;

impl<'c> MySqlSession<'c> {
    pub(super) fn new(connection: &'c mut MySqlConnection, shared: &'c Shared) -> Self {
        Self { connection, shared }
    }
}

fn bind<'q>(sql: &'static Sql, params: &'q [Param<'_>]) -> MySqlQuery<'q> {
    let order = sql.order.as_deref().unwrap_or_default();
    order.iter().fold(sqlx::query(super::text(sql)), |query, position| match params[*position] {
        Param::Int(value) => query.bind(value),
        Param::Text(value) => query.bind(value.map(str::to_owned)),
        Param::Id(value) => query.bind(value.map(|id| id.as_bytes().to_vec())),
    })
}

#[async_trait]
impl Session for MySqlSession<'_> {
    fn shared(&self) -> &Shared {
        self.shared
    }

    fn clock(&self) -> i64 {
        self.shared.offset.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn sql(&self, statement: Statement) -> &'static Sql {
        &MYSQL_CATALOG[statement as usize]
    }

    async fn execute_sql(&mut self, sql: &'static Sql, params: &[Param<'_>]) -> Result<u64, Failure> {
        Ok(bind(sql, params).execute(&mut *self.connection).await?.rows_affected())
    }

    async fn fetch_sql(&mut self, sql: &'static Sql, params: &[Param<'_>]) -> Result<Vec<SqlRow>, Failure> {
        let rows = bind(sql, params).fetch_all(&mut *self.connection).await?;
        Ok(rows.into_iter().map(SqlRow::MySql).collect())
    }

    async fn insert_tasks(&mut self, tasks: &[Submission<'_>], tallies: &[Tally]) -> Result<(), Failure> {
        for (sql, chunk) in INSERT.chunks(tasks) {
            let mut query = sqlx::query(super::text(sql));
            for submission in chunk {
                query = bind_submission(query, submission, self.clock())?;
            }
            query.execute(&mut *self.connection).await?;
        }
        ledger::insert_tallies(self, tallies).await
    }

    async fn append_tallies(&mut self, tallies: &[Tally]) -> Result<(), Failure> {
        for (sql, chunk) in APPEND.chunks(tallies) {
            let mut query = sqlx::query(super::text(sql));
            for Tally { key, n } in chunk {
                query = query.bind(key.span_start).bind(&key.queue).bind(&key.task_type).bind(key.measure.as_str());
                query = query.bind(&key.label).bind(key.bucket).bind(n);
            }
            query.execute(&mut *self.connection).await?;
        }
        Ok(())
    }

    async fn claim_tasks(&mut self, request: &ClaimRequest) -> Result<Vec<Task>, Failure> {
        let look = LaneLook { lanes: &LANES, peek: &PEEK };
        let own = LaneStatements { look, pick: &PICK, take: &TAKE };
        claim_by_lanes(self, &own, request).await
    }

    async fn claim_named(&mut self, request: &ClaimNamed) -> Result<Vec<Task>, Failure> {
        let (list, types) = (hex_list(request.ids.iter().copied()), serde_json::to_string(&request.task_types)?);
        let params = [self.clock().into(), (&list).into(), (&types).into(), request.node_id.0.into()];
        let mut standings = HashMap::new();
        for row in self.fetch_sql(&NAMED_FIND, &params).await? {
            standings.insert(row.must_text(0)?, row.must_int(1)?);
        }
        if standings.is_empty() {
            return Ok(Vec::new());
        }
        let found = serde_json::to_string(&standings.keys().collect::<BTreeSet<_>>())?;
        let mut picked = Vec::new();
        for row in self.fetch_sql(&NAMED_PICK, &[self.clock().into(), (&found).into()]).await? {
            picked.push(Picked::from_row(&row, standings[&row.must_text(3)?])?);
        }
        take(self, &TAKE, Claimant { node: request.node_id, host: &request.host }, &picked).await
    }

    async fn complete_tasks(&mut self, completions: &[Completion<'_>]) -> Result<Vec<TaskId>, Failure> {
        let document = completion_document(completions)?;
        let params = [self.clock().into(), (&document).into()];
        let rows = self.fetch_sql(&FIND, &params).await?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let updated = self.execute_sql(&COMPLETE, &params).await?;
        count_ended(self, &rows, updated).await
    }
}

fn bind_submission<'q>(
    query: MySqlQuery<'q>,
    submission: &Submission<'_>,
    clock: i64,
) -> Result<MySqlQuery<'q>, Failure> {
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
        .bind(clock)
        .bind(clock)
        .bind(run_at)
        .bind(clock + delay_us)
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
