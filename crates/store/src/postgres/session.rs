//! One connection to PostgreSQL, as the operations use it.

use std::sync::LazyLock;
use std::time::Instant;

use async_trait::async_trait;
use futures::TryStreamExt as _;
use longhaul_domain::{
    TaskId, TaskRecord,
    contract::store::{ClaimNamed, ClaimRequest},
    statistics::TaskCount,
};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    bounds::{LaneBound, Moves},
    catalog::{POSTGRES_CATALOG, POSTGRES_DIALECT, Sql, Statement},
    operations::claim::in_order,
    record,
    row::{Columns as _, Param, SqlRow},
    session::{Completion, LaneHead, Session, Shared, Submission},
    sql_error::SqlError,
    task_columns::{PLAIN_COLUMNS, Plain, TASK_COLUMNS, plain_params},
};

macro_rules! own {
    ($make:expr, $name:literal) => {
        LazyLock::new(|| $make($name, include_str!(concat!("sql/", $name, ".sql"))))
    };
}

static CLAIM: LazyLock<Sql> = own!(for_many, "claim_tasks");
static NAMED: LazyLock<Sql> = own!(for_many, "claim_named");
static CLAIM_ONE: LazyLock<Sql> = own!(for_one, "claim_one");
static COMPLETE: LazyLock<Sql> = own!(for_many, "complete_tasks");
static INSERT: LazyLock<Sql> = own!(for_many, "insert_tasks");
static ALIKE: LazyLock<Sql> = own!(for_many, "insert_alike");
static INSERT_ONE: LazyLock<Sql> = own!(for_one, "insert_task");
static INSERT_AND_NOTIFY: LazyLock<Sql> = LazyLock::new(|| {
    for_one(
        "insert_and_notify",
        concat!(
            include_str!("sql/insert_task.sql"),
            include_str!("sql/notify_hint.fragment")
        ),
    )
});

fn for_many(name: &'static str, file: &str) -> Sql {
    POSTGRES_DIALECT.sql(name, &with_taken(file, "gen_random_uuid()"))
}

fn with_taken(file: &str, token: &str) -> String {
    file.replace("{taken}", include_str!("sql/taken.fragment"))
        .replace("{token}", token)
}

/// A statement for one row. It computes the clock in place, which is cheaper than a subquery.
fn for_one(name: &'static str, file: &str) -> Sql {
    let file = with_taken(file, "$6");
    let now = "((date_part('epoch', statement_timestamp()) * 1000000)::bigint + $1)";
    POSTGRES_DIALECT.sql(name, &file.replace("{now}", now))
}

/// Every statement that the store sends to this database.
pub(crate) fn statements() -> impl Iterator<Item = &'static Sql> {
    POSTGRES_CATALOG.iter().chain([
        &*CLAIM,
        &*NAMED,
        &*CLAIM_ONE,
        &*COMPLETE,
        &*INSERT,
        &*ALIKE,
        &*INSERT_ONE,
        &*INSERT_AND_NOTIFY,
    ])
}

/// A connection, inside or outside a transaction.
pub(super) struct PgSession<'c> {
    connection: &'c mut PgConnection,
    shared: &'c Shared,
    moves: Moves,
}

type PgQuery<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

impl<'c> PgSession<'c> {
    pub(super) fn new(connection: &'c mut PgConnection, shared: &'c Shared) -> Self {
        Self {
            connection,
            shared,
            moves: Moves::default(),
        }
    }

    pub(super) fn into_moves(self) -> Moves {
        self.moves
    }

    async fn claim_from(
        &mut self,
        request: &ClaimRequest,
        bounds: &[LaneBound],
    ) -> Result<Vec<Claimed>, SqlError> {
        let (lanes, dues): (Vec<i64>, Vec<i64>) = bounds
            .iter()
            .map(|bound| (bound.lane, bound.due_at))
            .unzip();
        let query = sqlx::query(super::text(&CLAIM))
            .bind(self.clock())
            .bind(
                request
                    .queues
                    .iter()
                    .map(|name| name.as_str())
                    .collect::<Vec<_>>(),
            )
            .bind(&request.task_types);
        let query = query.bind(request.node_id.0).bind(&request.host);

        let query = query
            .bind(i64::try_from(request.limit).unwrap_or(i64::MAX))
            .bind(lanes)
            .bind(dues);

        self.read_claimed(query).await
    }

    /// Reads the claimed rows to the end, even if one cannot be read. If the read stopped early, it
    /// would be unknown whether the claim is committed.
    async fn read_claimed(&mut self, query: PgQuery<'_>) -> Result<Vec<Claimed>, SqlError> {
        let mut claimed = Vec::new();
        let mut trouble = None;
        let mut rows = query.fetch(&mut *self.connection);

        while let Some(row) = rows.try_next().await? {
            match Claimed::from_row(&SqlRow::Postgres(row)) {
                Ok(one) => claimed.push(one),
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }

        trouble.map_or(Ok(claimed), Err)
    }

    /// Claims without bounds and records how long it took.
    async fn claim_from_the_front(
        &mut self,
        request: &ClaimRequest,
    ) -> Result<Vec<Claimed>, SqlError> {
        let started = Instant::now();
        let claimed = self.claim_from(request, &[]).await?;
        self.shared.claim_bounds.note_full_scan(started.elapsed());
        Ok(claimed)
    }

    /// The claimed tasks, in claim order. Remembers the lanes that the statement returned.
    fn known(&self, claimed: Vec<Claimed>) -> Vec<TaskRecord> {
        let with_priority = |claimed: Claimed| {
            let Claimed {
                task,
                lane,
                lane_priority,
            } = claimed;

            if let Some(priority) =
                lane_priority.and_then(|lane_priority| u8::try_from(lane_priority).ok())
            {
                self.shared
                    .note_lane((task.queue.clone(), task.task_type.clone(), priority), lane);
            }

            (lane_priority.unwrap_or(i64::from(task.priority)), task)
        };

        in_order(claimed.into_iter().map(with_priority).collect())
    }

    async fn find_heads_from(
        &mut self,
        queue: Option<&str>,
        bounds: &[LaneBound],
    ) -> Result<Vec<LaneHead>, SqlError> {
        let bounds = serde_json::to_string(bounds)?;
        let params = [self.clock().into(), Param::Text(queue), (&bounds).into()];
        let rows = self.fetch(Statement::FindHeads, &params).await?;
        rows.iter().map(LaneHead::from_row).collect()
    }
}

/// A claimed task and its lane, with the lane's priority if the statement returned it.
struct Claimed {
    task: TaskRecord,
    lane: i64,
    lane_priority: Option<i64>,
}

impl Claimed {
    fn from_row(row: &SqlRow) -> Result<Self, SqlError> {
        let lane = row.must_int(TASK_COLUMNS.len())?;
        let lane_priority = row.int(TASK_COLUMNS.len() + 1)?;
        Ok(Self {
            task: record::task(row)?,
            lane,
            lane_priority,
        })
    }
}

fn bind<'q>(sql: &'static Sql, params: &'q [Param<'_>]) -> PgQuery<'q> {
    params
        .iter()
        .fold(sqlx::query(super::text(sql)), |query, param| {
            bind_param(query, *param)
        })
}

fn bind_param<'q>(query: PgQuery<'q>, param: Param<'_>) -> PgQuery<'q> {
    match param {
        Param::Int(value) => query.bind(value),
        Param::Text(value) => query.bind(value),
        Param::Id(value) => query.bind(value),
    }
}

#[async_trait]
impl Session for PgSession<'_> {
    fn shared(&self) -> &Shared {
        self.shared
    }

    fn clock(&self) -> i64 {
        self.shared
            .offset
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    fn sql(&self, statement: Statement) -> &'static Sql {
        &POSTGRES_CATALOG[statement as usize]
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
        Ok(rows.into_iter().map(SqlRow::Postgres).collect())
    }

    async fn insert_tasks(
        &mut self,
        tasks: &[Submission<'_>],
        task_counts: &[TaskCount],
    ) -> Result<(), SqlError> {
        let clock = self.clock();
        if let ([only], [_queued]) = (tasks, task_counts) {
            insert_one(only, clock)
                .execute(&mut *self.connection)
                .await?;
            return Ok(());
        }

        let task_counts = serde_json::to_string(task_counts)?;
        let query = match Submission::shared(tasks) {
            Some(first) => insert_alike(first, tasks, clock, &task_counts),
            None => insert_mixed(tasks, clock, &task_counts),
        };
        query.execute(&mut *self.connection).await?;

        Ok(())
    }

    async fn claim_tasks(&mut self, request: &ClaimRequest) -> Result<Vec<TaskRecord>, SqlError> {
        let mut bounds = self.shared.claim_bounds.current();
        let mut claimed = match bounds.is_empty() {
            true => self.claim_from_the_front(request).await?,
            false => self.claim_from(request, &bounds).await?,
        };

        // A task may be due before the bounds, so an empty result calls for a full scan.
        if claimed.is_empty() && !bounds.is_empty() && self.shared.claim_bounds.may_look_again() {
            bounds.clear();
            claimed = self.claim_from_the_front(request).await?;
        }

        for Claimed { task, lane, .. } in &claimed {
            self.moves.claimed(&bounds, *lane, task.due_at.as_micros());
        }

        Ok(self.known(claimed))
    }

    async fn claim_named(&mut self, request: &ClaimNamed) -> Result<Vec<TaskRecord>, SqlError> {
        let ClaimNamed {
            node_id,
            host,
            task_types,
            ..
        } = request;

        let query = match &*request.ids {
            [only] => {
                let query = sqlx::query(super::text(&CLAIM_ONE))
                    .bind(self.clock())
                    .bind(only.0)
                    .bind(task_types);
                query
                    .bind(node_id.0)
                    .bind(host)
                    .bind(crate::random::token())
            }
            ids => {
                let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
                let query = sqlx::query(super::text(&NAMED))
                    .bind(self.clock())
                    .bind(ids)
                    .bind(task_types);
                query.bind(node_id.0).bind(host)
            }
        };

        let claimed = self.read_claimed(query).await?;
        // If all tasks are claimed one by one and by name, nothing else raises the bounds, and each
        // scan would start at the front.
        if let [Claimed { task, lane, .. }] = &*claimed {
            self.moves.claimed_by_name(*lane, task.due_at.as_micros());
        }

        Ok(self.known(claimed))
    }

    async fn find_heads(&mut self, queue: Option<&str>) -> Result<Vec<LaneHead>, SqlError> {
        let mut bounds = self.shared.look_bounds.current();
        let mut heads = match bounds.is_empty() {
            true => Vec::new(),
            false => self.find_heads_from(queue, &bounds).await?,
        };

        // A task may be due before the bounds, so an empty result calls for a full scan.
        if heads.is_empty() && (bounds.is_empty() || self.shared.look_bounds.may_look_again()) {
            bounds.clear();
            let started = Instant::now();
            heads = self.find_heads_from(queue, &[]).await?;
            self.shared.look_bounds.note_full_scan(started.elapsed());
        }

        let mut seen = Moves::default();
        heads
            .iter()
            .for_each(|head| seen.claimed(&bounds, head.lane, head.due_at));
        self.shared.look_bounds.raise(&seen);

        Ok(heads)
    }

    async fn complete_tasks(
        &mut self,
        completions: &[Completion<'_>],
    ) -> Result<Vec<TaskId>, SqlError> {
        let ids: Vec<Uuid> = completions
            .iter()
            .map(|done| done.lease.task_id.0)
            .collect();
        let attempts: Vec<i64> = completions
            .iter()
            .map(|done| i64::from(done.lease.attempt))
            .collect();
        let tokens: Vec<Uuid> = completions.iter().map(|done| done.lease.token.0).collect();

        let results: Vec<Option<&str>> = completions.iter().map(|done| done.result).collect();
        let urls: Vec<Option<&str>> = completions.iter().map(|done| done.result_url).collect();
        let query = sqlx::query(super::text(&COMPLETE))
            .bind(self.clock())
            .bind(ids)
            .bind(attempts)
            .bind(tokens);
        let rows = query
            .bind(results)
            .bind(urls)
            .fetch_all(&mut *self.connection)
            .await?;

        let mut ended = Vec::with_capacity(rows.len());
        for row in rows {
            ended.push(TaskId(SqlRow::Postgres(row).must_id(0)?));
        }

        Ok(ended)
    }
}

/// `insert_task` with its parameters bound.
fn insert_one<'q>(submission: &Submission<'_>, clock: i64) -> PgQuery<'q> {
    let task = submission.task;
    let (run_at, delay_us) = submission.run_time();
    let sql = match task.notifies {
        true => &INSERT_AND_NOTIFY,
        false => &INSERT_ONE,
    };

    let query = sqlx::query(super::text(sql))
        .bind(clock)
        .bind(submission.id.0)
        .bind(task.task_key.as_deref())
        .bind(submission.lane);
    let query = query
        .bind(run_at)
        .bind(delay_us)
        .bind(task.parameters.as_str());

    plain_params(submission).fold(query, bind_param)
}

/// `insert_alike` with its parameters bound.
fn insert_alike<'q>(
    first: &Submission<'_>,
    tasks: &[Submission<'_>],
    clock: i64,
    task_counts: &str,
) -> PgQuery<'q> {
    let query = start_insert(&ALIKE, tasks, clock, task_counts)
        .bind(column(tasks, |one| one.run_time().0))
        .bind(column(tasks, |one| one.task.parameters.as_str()))
        .bind(first.run_time().1)
        .bind(first.lane);

    plain_params(first).fold(query, bind_param)
}

/// `insert_tasks` with its parameters bound.
fn insert_mixed<'q>(tasks: &[Submission<'_>], clock: i64, task_counts: &str) -> PgQuery<'q> {
    let query = start_insert(&INSERT, tasks, clock, task_counts)
        .bind(column(tasks, |one| one.lane))
        .bind(column(tasks, |one| one.run_time().0))
        .bind(column(tasks, |one| one.run_time().1))
        .bind(column(tasks, |one| one.task.parameters.as_str()));

    PLAIN_COLUMNS.iter().fold(query, |query, column| {
        bind_array(query, column.plain, tasks)
    })
}

/// A statement over several tasks, with its first five parameters.
fn start_insert<'q>(
    sql: &'static Sql,
    tasks: &[Submission<'_>],
    clock: i64,
    task_counts: &str,
) -> PgQuery<'q> {
    let notifies = tasks.iter().any(|one| one.task.notifies);

    sqlx::query(super::text(sql))
        .bind(clock)
        .bind(task_counts)
        .bind(i64::from(notifies))
        .bind(column(tasks, |one| one.id.0))
        .bind(column(tasks, |one| one.task.task_key.as_deref()))
}

/// One value of each task.
fn column<'s, T>(tasks: &'s [Submission<'s>], value: impl Fn(&'s Submission<'s>) -> T) -> Vec<T> {
    tasks.iter().map(value).collect()
}

/// The values of a plain column as an array.
fn bind_array<'q>(query: PgQuery<'q>, plain: Plain, tasks: &[Submission<'_>]) -> PgQuery<'q> {
    match plain {
        Plain::Id(value) => query.bind(column(tasks, value)),
        Plain::Int(value) => query.bind(column(tasks, value)),
        Plain::Text(value) => query.bind(column(tasks, value)),
        Plain::Flag(value) => query.bind(column(tasks, value)),
    }
}
