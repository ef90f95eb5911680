//! One connection to PostgreSQL, as the operations use it.

use std::sync::LazyLock;
use std::time::Instant;

use async_trait::async_trait;
use futures::TryStreamExt as _;
use longhaul_domain::{
    TaskId, TaskRecord, Timestamp,
    contract::store::{ClaimNamed, ClaimRequest},
    statistics::TaskCount,
};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    bounds::{LaneBound, Moves},
    catalog::{POSTGRES_CATALOG, POSTGRES_DIALECT, Sql, Statement},
    operations::claim::in_order,
    record::{self, TASK_COLUMNS},
    row::{Columns as _, Param, SqlRow},
    session::{Completion, LaneHead, Session, Shared, Submission},
    sql_error::SqlError,
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
            .bind(&request.queues)
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
        let lane = row.must_int(TASK_COLUMNS)?;
        let lane_priority = row.int(TASK_COLUMNS + 1)?;
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
        .fold(sqlx::query(super::text(sql)), |query, param| match *param {
            Param::Int(value) => query.bind(value),
            Param::Text(value) => query.bind(value),
            Param::Id(value) => query.bind(value),
        })
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
        if let ([only], [_queued]) = (tasks, task_counts) {
            let policy = only.policy_text()?;
            let sql = if only.task.notifies {
                &INSERT_AND_NOTIFY
            } else {
                &INSERT_ONE
            };

            self.execute_sql(sql, &inserted(only, policy.as_deref(), self.clock()))
                .await?;
            return Ok(());
        }

        let task_counts = serde_json::to_string(task_counts)?;
        if let Some(first) = Submission::shared(tasks) {
            let notifies = tasks.iter().any(|submission| submission.task.notifies);
            bind_alike(first, tasks, self.clock(), &task_counts, notifies)?
                .execute(&mut *self.connection)
                .await?;
            return Ok(());
        }

        let columns = Columns::of(tasks)?;
        columns
            .bind(self.clock(), &task_counts)
            .execute(&mut *self.connection)
            .await?;

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

/// The parameters of `insert_task`.
fn inserted<'a>(
    submission: &Submission<'a>,
    policy: Option<&'a str>,
    clock: i64,
) -> [Param<'a>; 21] {
    let task = submission.task;
    let (run_at, delay_us) = submission.run_time();

    [
        clock.into(),
        submission.id.0.into(),
        Param::Id(task.parent.map(|lease| lease.task_id.0)),
        (&*task.owner).into(),
        Param::Text(task.tier.as_deref()),
        (&*task.task_type).into(),
        Param::Text(task.task_key.as_deref()),
        (&*task.queue).into(),
        i64::from(task.priority).into(),
        submission.lane.into(),
        Param::Int(run_at),
        delay_us.into(),
        i64::from(task.max_attempts).into(),
        Param::Int(task.timeout_ms.and_then(|ms| i64::try_from(ms).ok())),
        Param::Int(task.deadline_at.map(Timestamp::as_micros)),
        i64::from(task.finish_step).into(),
        Param::Text(policy),
        task.parameters.as_str().into(),
        Param::Text(task.memo.as_ref().map(|memo| memo.as_str())),
        Param::Text(task.correlation_id.as_deref()),
        Param::Text(task.trace_context.as_deref()),
    ]
}

/// `insert_alike` with its parameters bound.
fn bind_alike<'a>(
    first: &Submission<'a>,
    tasks: &[Submission<'a>],
    clock: i64,
    task_counts: &'a str,
    notifies: bool,
) -> Result<PgQuery<'a>, SqlError> {
    let task = first.task;
    let query = sqlx::query(super::text(&ALIKE))
        .bind(clock)
        .bind(task_counts)
        .bind(i64::from(notifies))
        .bind(tasks.iter().map(|one| one.id.0).collect::<Vec<_>>())
        .bind(
            tasks
                .iter()
                .map(|one| one.task.task_key.as_deref())
                .collect::<Vec<_>>(),
        )
        .bind(tasks.iter().map(|one| one.run_time().0).collect::<Vec<_>>())
        .bind(
            tasks
                .iter()
                .map(|one| one.task.parameters.as_str())
                .collect::<Vec<_>>(),
        )
        .bind(first.run_time().1)
        .bind(task.parent.map(|lease| lease.task_id.0))
        .bind(&task.owner)
        .bind(task.tier.as_deref())
        .bind(&task.task_type)
        .bind(&task.queue)
        .bind(i64::from(task.priority))
        .bind(first.lane)
        .bind(i64::from(task.max_attempts))
        .bind(task.timeout_ms.and_then(|ms| i64::try_from(ms).ok()))
        .bind(task.deadline_at.map(Timestamp::as_micros))
        .bind(i64::from(task.finish_step))
        .bind(first.policy_text()?)
        .bind(task.memo.as_ref().map(longhaul_domain::Json::as_str))
        .bind(task.correlation_id.as_deref())
        .bind(task.trace_context.as_deref());

    Ok(query)
}

/// A batch of tasks, column by column.
#[derive(Default)]
struct Columns<'a> {
    ids: Vec<Uuid>,
    parents: Vec<Option<Uuid>>,
    owners: Vec<&'a str>,
    tiers: Vec<Option<&'a str>>,
    types: Vec<&'a str>,
    keys: Vec<Option<&'a str>>,
    queues: Vec<&'a str>,
    priorities: Vec<i64>,
    lanes: Vec<i64>,
    run_ats: Vec<Option<i64>>,
    delays_us: Vec<i64>,
    max_attempts: Vec<i64>,
    timeouts_ms: Vec<Option<i64>>,
    deadlines: Vec<Option<i64>>,
    finish_steps: Vec<bool>,
    policies: Vec<Option<String>>,
    parameters: Vec<&'a str>,
    memos: Vec<Option<&'a str>>,
    correlations: Vec<Option<&'a str>>,
    traces: Vec<Option<&'a str>>,
    notifies: bool,
}

impl<'a> Columns<'a> {
    fn of(tasks: &[Submission<'a>]) -> Result<Self, SqlError> {
        let mut columns = Self::default();
        for submission in tasks {
            columns.push(submission)?;
        }
        Ok(columns)
    }

    fn push(&mut self, submission: &Submission<'a>) -> Result<(), SqlError> {
        let task = submission.task;
        let (run_at, delay_us) = submission.run_time();
        self.ids.push(submission.id.0);
        self.parents.push(task.parent.map(|lease| lease.task_id.0));
        self.owners.push(&task.owner);
        self.tiers.push(task.tier.as_deref());
        self.types.push(&task.task_type);
        self.keys.push(task.task_key.as_deref());
        self.queues.push(&task.queue);

        self.priorities.push(i64::from(task.priority));
        self.lanes.push(submission.lane);
        self.run_ats.push(run_at);
        self.delays_us.push(delay_us);
        self.max_attempts.push(i64::from(task.max_attempts));
        self.timeouts_ms
            .push(task.timeout_ms.and_then(|ms| i64::try_from(ms).ok()));
        self.deadlines
            .push(task.deadline_at.map(Timestamp::as_micros));

        self.finish_steps.push(task.finish_step);
        self.policies.push(submission.policy_text()?);
        self.parameters.push(task.parameters.as_str());
        self.memos
            .push(task.memo.as_ref().map(longhaul_domain::Json::as_str));
        self.correlations.push(task.correlation_id.as_deref());
        self.traces.push(task.trace_context.as_deref());
        self.notifies |= task.notifies;

        Ok(())
    }

    fn bind(self, clock: i64, task_counts: &'a str) -> PgQuery<'a> {
        sqlx::query(super::text(&INSERT))
            .bind(clock)
            .bind(task_counts)
            .bind(self.ids)
            .bind(self.parents)
            .bind(self.owners)
            .bind(self.tiers)
            .bind(self.types)
            .bind(self.keys)
            .bind(self.queues)
            .bind(self.priorities)
            .bind(self.lanes)
            .bind(self.run_ats)
            .bind(self.delays_us)
            .bind(self.max_attempts)
            .bind(self.timeouts_ms)
            .bind(self.deadlines)
            .bind(self.finish_steps)
            .bind(self.policies)
            .bind(self.parameters)
            .bind(self.memos)
            .bind(self.correlations)
            .bind(self.traces)
            .bind(i64::from(self.notifies))
    }
}
