//! One open transaction (or connection) of any of the three databases, as the operations see it.

use std::collections::HashMap;
use std::sync::{
    Arc, LazyLock, Mutex, OnceLock, PoisonError,
    atomic::{AtomicI64, Ordering},
};

use async_trait::async_trait;
use longhaul_domain::{
    Clock, NewTask, RunAt, Task, TaskId, TaskIdSequence, Timestamp,
    contract::store::{ClaimNamed, ClaimRequest},
    event::OutboxPolicy,
    statistics::Tally,
    task::Lease,
};

use crate::{
    bounds::{ClaimBounds, Moves},
    catalog::{Sql, Statement},
    failure::Failure,
    row::{Columns as _, Param, SqlRow},
};

/// One use of the store, written once for all databases. It may be run again from the start, and owns what it needs: on
/// SQLite another thread runs it.
#[async_trait]
pub(crate) trait Operation: Send + Sync + 'static {
    type Output: Send;

    async fn run(&self, session: &mut dyn Session) -> Result<Self::Output, Failure>;
}

/// What an operation can ask of a database.
#[async_trait]
pub(crate) trait Session: Send {
    fn shared(&self) -> &Shared;
    /// The first parameter of every statement that asks for the time.
    fn clock(&self) -> i64;
    /// The text of a statement in this database.
    fn sql(&self, statement: Statement) -> &'static Sql;
    async fn execute_sql(
        &mut self,
        sql: &'static Sql,
        params: &[Param<'_>],
    ) -> Result<u64, Failure>;
    async fn fetch_sql(
        &mut self,
        sql: &'static Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<SqlRow>, Failure>;

    async fn execute(
        &mut self,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<u64, Failure> {
        self.execute_sql(self.sql(statement), params).await
    }
    async fn fetch(
        &mut self,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<Vec<SqlRow>, Failure> {
        self.fetch_sql(self.sql(statement), params).await
    }

    // The hot path, where each database has its own best way.

    /// Writes the tasks and, with them, what they add to the counts.
    async fn insert_tasks(
        &mut self,
        tasks: &[Submission<'_>],
        tallies: &[Tally],
    ) -> Result<(), Failure>;
    /// Claims in the store's order, and counts the claims.
    async fn claim_tasks(&mut self, request: &ClaimRequest) -> Result<Vec<Task>, Failure>;
    /// Claims what can be claimed of the named tasks, in the store's order, and counts the claims.
    async fn claim_named(&mut self, request: &ClaimNamed) -> Result<Vec<Task>, Failure>;
    /// Ends what has neither parent nor children to think of, and counts it. What is not in the answer was not
    /// ended.
    async fn complete_tasks(
        &mut self,
        completions: &[Completion<'_>],
    ) -> Result<Vec<TaskId>, Failure>;

    /// Appends what a transaction adds to the counts.
    async fn append_tallies(&mut self, tallies: &[Tally]) -> Result<(), Failure> {
        let document = serde_json::to_string(tallies)?;
        self.execute(Statement::InsertTallyDeltas, &[(&document).into()])
            .await?;
        Ok(())
    }

    /// Where due tasks of a queue, or of all queues, begin; one for each lane that holds any.
    async fn find_heads(&mut self, queue: Option<&str>) -> Result<Vec<LaneHead>, Failure> {
        let clock = self.clock();
        let rows = self
            .fetch(Statement::FindHeads, &[clock.into(), Param::Text(queue)])
            .await?;
        rows.iter().map(LaneHead::from_row).collect()
    }

    /// Notes that a task of `lane` will be claimable from `due_at` on, once this transaction is committed.
    fn note_requeued(&mut self, _lane: i64, _due_at: i64) {}

    async fn now(&mut self) -> Result<Timestamp, Failure> {
        let clock = self.clock();
        let rows = self.fetch(Statement::Now, &[clock.into()]).await?;
        let row = rows.first().ok_or_else(|| Failure::internal("no time"))?;
        Ok(Timestamp::from_micros(row.must_int(0)?))
    }
}

/// A checked task on its way into the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Submission<'a> {
    pub(crate) id: TaskId,
    pub(crate) lane: i64,
    pub(crate) task: &'a NewTask,
}

impl Submission<'_> {
    /// The first of the tasks, if they are alike and not one alone: what it says of itself, the others say, too.
    pub(crate) fn shared<'t, 'a>(tasks: &'t [Submission<'a>]) -> Option<&'t Submission<'a>> {
        let (first, rest) = tasks.split_first()?;
        (!rest.is_empty() && rest.iter().all(|other| first.is_alike(other))).then_some(first)
    }

    /// About how much of a statement it takes.
    pub(crate) fn bytes(&self) -> usize {
        let memo = self
            .task
            .memo
            .as_ref()
            .map_or(0, |memo| memo.as_str().len());
        500 + self.task.parameters.as_str().len() + memo
    }

    /// The retry policy as it is stored; the default is not.
    pub(crate) fn policy_text(&self) -> Result<Option<String>, Failure> {
        let own = (self.task.retry != longhaul_domain::RetryPolicy::default())
            .then_some(&self.task.retry);
        Ok(own.map(serde_json::to_string).transpose()?)
    }

    /// The moment if the caller named one, and the delay from now otherwise, in microseconds.
    pub(crate) fn run_time(&self) -> (Option<i64>, i64) {
        match self.task.run_at {
            RunAt::Now => (None, 0),
            RunAt::At(moment) => (Some(moment.as_micros()), 0),
            RunAt::AfterMs(ms) => (
                None,
                i64::try_from(ms)
                    .unwrap_or(i64::MAX / 1_000)
                    .saturating_mul(1_000),
            ),
        }
    }

    /// Whether the two differ in nothing but id, key, named moment and parameters, as far as the row has it.
    fn is_alike(&self, other: &Submission<'_>) -> bool {
        // Every field is named here, so that a new one is not forgotten.
        let NewTask {
            owner,
            tier,
            task_type,
            queue,
            priority,
            max_attempts,
            timeout_ms,
            deadline_at,
            finish_step,
            retry,
            memo,
            correlation_id,
            trace_context,
            parent,
            id: _,
            task_key: _,
            run_at: _,
            parameters: _,
            idempotency: _,
            rings: _,
        } = self.task;
        let task = other.task;
        (self.lane, self.run_time().1) == (other.lane, other.run_time().1)
            && (owner, tier, task_type, queue, priority)
                == (
                    &task.owner,
                    &task.tier,
                    &task.task_type,
                    &task.queue,
                    &task.priority,
                )
            && (max_attempts, timeout_ms, deadline_at)
                == (&task.max_attempts, &task.timeout_ms, &task.deadline_at)
            && (finish_step, retry, memo, parent)
                == (&task.finish_step, &task.retry, &task.memo, &task.parent)
            && (correlation_id, trace_context) == (&task.correlation_id, &task.trace_context)
    }
}

/// The result of an attempt of a task that may well have neither parent nor children.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion<'a> {
    pub(crate) lease: Lease,
    pub(crate) result: Option<&'a str>,
    pub(crate) result_url: Option<&'a str>,
}

/// The first due task of a lane.
#[derive(Debug, Clone)]
pub(crate) struct LaneHead {
    pub(crate) lane: i64,
    pub(crate) queue: String,
    pub(crate) task_type: String,
    pub(crate) priority: u8,
    pub(crate) due_at: i64,
    pub(crate) is_paused: bool,
}

impl LaneHead {
    pub(crate) fn from_row(row: &SqlRow) -> Result<Self, Failure> {
        Ok(Self {
            lane: row.must_int(0)?,
            queue: row.must_text(1)?,
            task_type: row.must_text(5)?,
            priority: u8::try_from(row.must_int(2)?).unwrap_or(0),
            due_at: row.must_int(3)?,
            is_paused: row.int(4)?.is_some(),
        })
    }
}

/// Queue, type and priority: what a lane stands for.
pub(crate) type LaneKey = (String, String, u8);

/// What all sessions of one store share.
#[derive(Debug)]
pub(crate) struct Shared {
    outbox: OnceLock<OutboxPolicy>,
    /// What is added to the database's clock: zero but in tests.
    pub(crate) offset: Arc<AtomicI64>,
    pub(crate) claim_bounds: ClaimBounds,
    /// The same for those who only look, and see the first task that is left.
    pub(crate) look_bounds: ClaimBounds,
    /// This process's clock, brought near the store's by `skew`. Only ids are made from it.
    local: Arc<dyn Clock>,
    skew: AtomicI64,
    ids: Mutex<TaskIdSequence>,
    /// Lanes that are committed; they are never removed.
    lanes: Mutex<HashMap<LaneKey, i64>>,
}

impl Shared {
    pub(crate) fn new(outbox: OutboxPolicy, offset: Arc<AtomicI64>, local: Arc<dyn Clock>) -> Self {
        let outbox = if outbox == OutboxPolicy::default() {
            OnceLock::new()
        } else {
            OnceLock::from(outbox)
        };
        Self {
            outbox,
            offset,
            claim_bounds: ClaimBounds::default(),
            look_bounds: ClaimBounds::default(),
            local,
            skew: AtomicI64::new(0),
            ids: Mutex::default(),
            lanes: Mutex::default(),
        }
    }

    /// Which messages are written beside changes.
    pub(crate) fn outbox(&self) -> &OutboxPolicy {
        static NONE: LazyLock<OutboxPolicy> = LazyLock::new(OutboxPolicy::default);
        self.outbox.get().unwrap_or(&NONE)
    }

    /// Has messages written from now on, unless somebody has said which before.
    pub(crate) fn write_messages(&self, policy: OutboxPolicy) {
        self.outbox.get_or_init(|| policy);
    }

    pub(crate) fn local_now(&self) -> Timestamp {
        self.local.now()
    }

    /// About what the store's clock says, without asking it. Good for ids, not for decisions.
    pub(crate) fn estimated_now(&self) -> Timestamp {
        let shift = self.skew.load(Ordering::Relaxed);
        Timestamp::from_micros(self.local.now().as_micros() + shift)
    }

    /// Notes how far the store's clock is from this process's.
    pub(crate) fn note_store_time(&self, store: Timestamp) {
        self.skew.store(
            store.as_micros() - self.local.now().as_micros(),
            Ordering::Relaxed,
        );
    }

    pub(crate) fn next_id(&self) -> TaskId {
        self.next_ids()()
    }

    /// Gives out as many ids as are asked for, at one look at the clock.
    pub(crate) fn next_ids(&self) -> impl FnMut() -> TaskId {
        let now = self.estimated_now();
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        move || ids.next_id(now, crate::random::next_u64())
    }

    /// Notes what a transaction that is committed has changed about where claims start.
    pub(crate) fn note_moves(&self, moves: &Moves) {
        self.claim_bounds.note(moves);
        self.look_bounds.lower(moves);
    }

    pub(crate) fn known_lane(&self, key: &LaneKey) -> Option<i64> {
        self.lanes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .copied()
    }

    /// Remembers a lane that a committed task or an own transaction has shown to exist.
    pub(crate) fn note_lane(&self, key: LaneKey, lane: i64) {
        self.lanes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, lane);
    }
}
