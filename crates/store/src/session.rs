//! One open transaction or connection of any database, as the operations see it.

use std::collections::HashMap;
use std::sync::{
    Arc, LazyLock, Mutex, OnceLock, PoisonError,
    atomic::{AtomicI64, Ordering},
};

use async_trait::async_trait;
use longhaul_domain::{
    Clock, Invalid, NewTask, QueueName, RetryPolicy, RunAt, TaskId, TaskIdSequence, TaskRecord,
    Timestamp,
    contract::store::{ClaimNamed, ClaimRequest},
    event::OutboxPolicy,
    statistics::TaskCount,
    task::Lease,
};

use crate::{
    bounds::{ClaimBounds, Moves},
    catalog::{Sql, Statement},
    record,
    row::{Columns as _, Param, SqlRow},
    sql_error::SqlError,
    task_columns::plain_params,
};

/// How an operation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Several statements in one transaction.
    Transaction,
    /// One statement without a transaction, where the database can do it in one.
    OneStatement,
    /// Reads only.
    ReadOnly,
}

/// One operation of the store with its parameters, written once for all databases. It may run again
/// from the start. It owns its data, because SQLite runs it on another thread.
#[async_trait]
pub(crate) trait Operation: Send + Sync + 'static {
    type Output: Send;
    const MODE: Mode = Mode::Transaction;

    fn mode(&self, _shared: &Shared) -> Mode {
        Self::MODE
    }

    /// Refuses parameters that are out of bounds, before any statement.
    fn check(&self) -> Result<(), Invalid> {
        Ok(())
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Self::Output, SqlError>;
}

/// The database as an operation uses it.
#[async_trait]
pub(crate) trait Session: Send {
    fn shared(&self) -> &Shared;
    /// The first parameter of every statement that uses the time.
    fn clock(&self) -> i64;
    /// The text of a statement in this database.
    fn sql(&self, statement: Statement) -> &'static Sql;
    async fn execute_sql(
        &mut self,
        sql: &'static Sql,
        params: &[Param<'_>],
    ) -> Result<u64, SqlError>;
    async fn fetch_sql(
        &mut self,
        sql: &'static Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<SqlRow>, SqlError>;

    async fn execute(
        &mut self,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<u64, SqlError> {
        self.execute_sql(self.sql(statement), params).await
    }
    async fn fetch(
        &mut self,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<Vec<SqlRow>, SqlError> {
        self.fetch_sql(self.sql(statement), params).await
    }

    // The hot path: each database has its own fastest way.

    /// Writes the tasks and their changes to the counts.
    async fn insert_tasks(
        &mut self,
        tasks: &[Submission<'_>],
        task_counts: &[TaskCount],
    ) -> Result<(), SqlError>;
    /// Claims tasks in the store's order and counts the claims.
    async fn claim_tasks(&mut self, request: &ClaimRequest) -> Result<Vec<TaskRecord>, SqlError>;
    /// Claims the claimable ones of the named tasks, in the store's order, and counts the claims.
    async fn claim_named(&mut self, request: &ClaimNamed) -> Result<Vec<TaskRecord>, SqlError>;
    /// Ends tasks without parent or children, and counts them. Returns the ended tasks; the others
    /// are unchanged.
    async fn complete_tasks(
        &mut self,
        completions: &[Completion<'_>],
    ) -> Result<Vec<TaskId>, SqlError>;

    /// Appends a transaction's changes to the counts.
    async fn append_task_counts(&mut self, task_counts: &[TaskCount]) -> Result<(), SqlError> {
        let document = serde_json::to_string(task_counts)?;
        self.execute(Statement::InsertCountDeltas, &[(&document).into()])
            .await?;
        Ok(())
    }

    /// The first due task of each lane, in one queue or in all.
    async fn find_heads(&mut self, queue: Option<&str>) -> Result<Vec<LaneHead>, SqlError> {
        let clock = self.clock();
        let rows = self
            .fetch(Statement::FindHeads, &[clock.into(), Param::Text(queue)])
            .await?;
        rows.iter().map(LaneHead::from_row).collect()
    }

    /// Records that a task of `lane` is claimable from `due_at` on, once this transaction commits.
    fn note_requeued(&mut self, _lane: i64, _due_at: i64) {}

    async fn now(&mut self) -> Result<Timestamp, SqlError> {
        let clock = self.clock();
        let rows = self.fetch(Statement::Now, &[clock.into()]).await?;
        let row = rows.first().ok_or_else(|| SqlError::internal("no time"))?;
        Ok(Timestamp::from_micros(row.must_int(0)?))
    }
}

/// A checked task on its way into the store.
#[derive(Debug, Clone)]
pub(crate) struct Submission<'a> {
    pub(crate) id: TaskId,
    pub(crate) lane: i64,
    pub(crate) task: &'a NewTask,
    /// The retry policy as stored; `None` for the default.
    pub(crate) policy: Option<String>,
}

impl<'a> Submission<'a> {
    pub(crate) fn new(id: TaskId, lane: i64, task: &'a NewTask) -> Result<Self, SqlError> {
        let own = (task.retry != RetryPolicy::default()).then_some(&task.retry);

        Ok(Self {
            id,
            lane,
            task,
            policy: own.map(serde_json::to_string).transpose()?,
        })
    }

    /// The first of several tasks, if all of them share its values.
    pub(crate) fn shared(tasks: &[Self]) -> Option<&Self> {
        let (first, rest) = tasks.split_first()?;
        (!rest.is_empty() && rest.iter().all(|other| first.is_alike(other))).then_some(first)
    }

    /// About its size in a statement.
    pub(crate) fn bytes(&self) -> usize {
        task_bytes(self.task)
    }

    /// The run time if the caller set one, else the delay from now, in microseconds.
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

    /// Whether their rows differ in id, key, run time and parameters only.
    fn is_alike(&self, other: &Self) -> bool {
        self.lane == other.lane
            && self.run_time().1 == other.run_time().1
            && plain_params(self).eq(plain_params(other))
    }
}

/// About the size of a new task in a statement.
pub(crate) fn task_bytes(task: &NewTask) -> usize {
    let memo = task.memo.as_ref().map_or(0, |memo| memo.as_str().len());
    500 + task.parameters.as_str().len() + memo
}

/// The result of a task that probably has neither parent nor children.
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
    pub(crate) queue: QueueName,
    pub(crate) task_type: String,
    pub(crate) priority: u8,
    pub(crate) due_at: i64,
    pub(crate) is_paused: bool,
}

impl LaneHead {
    pub(crate) fn from_row(row: &SqlRow) -> Result<Self, SqlError> {
        Ok(Self {
            lane: row.must_int(0)?,
            queue: record::queue_name(row.must_str(1)?),
            task_type: row.must_text(5)?,
            priority: u8::try_from(row.must_int(2)?).unwrap_or(0),
            due_at: row.must_int(3)?,
            is_paused: row.int(4)?.is_some(),
        })
    }
}

/// The queue, type and priority of a lane.
pub(crate) type LaneKey = (QueueName, String, u8);

/// The state that all sessions of one store share.
#[derive(Debug)]
pub(crate) struct Shared {
    outbox: OnceLock<OutboxPolicy>,
    /// Added to the database's clock. Zero except in tests.
    pub(crate) offset: Arc<AtomicI64>,
    pub(crate) claim_bounds: ClaimBounds,
    /// The bounds of reads, which see the first remaining task.
    pub(crate) look_bounds: ClaimBounds,
    /// This process's clock. With `skew` it estimates the store's clock, for ids only.
    local: Arc<dyn Clock>,
    skew: AtomicI64,
    ids: Mutex<TaskIdSequence>,
    /// Committed lanes. Lanes are never removed.
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

    /// The messages that changes write to the outbox.
    pub(crate) fn outbox(&self) -> &OutboxPolicy {
        static NONE: LazyLock<OutboxPolicy> = LazyLock::new(OutboxPolicy::default);
        self.outbox.get().unwrap_or(&NONE)
    }

    /// Sets the outbox policy. The first call wins.
    pub(crate) fn write_messages(&self, policy: OutboxPolicy) {
        self.outbox.get_or_init(|| policy);
    }

    pub(crate) fn local_now(&self) -> Timestamp {
        self.local.now()
    }

    /// The clock of an embedded store.
    pub(crate) const fn local_clock(&self) -> &Arc<dyn Clock> {
        &self.local
    }

    /// An estimate of the store's clock, without a query. For ids, not for decisions.
    pub(crate) fn estimated_now(&self) -> Timestamp {
        let shift = self.skew.load(Ordering::Relaxed);
        Timestamp::from_micros(self.local.now().as_micros() + shift)
    }

    /// Records the difference between the store's clock and this process's.
    pub(crate) fn note_store_time(&self, store: Timestamp) {
        self.skew.store(
            store.as_micros() - self.local.now().as_micros(),
            Ordering::Relaxed,
        );
    }

    pub(crate) fn next_id(&self) -> TaskId {
        self.next_ids()()
    }

    /// An id generator that reads the clock once.
    pub(crate) fn next_ids(&self) -> impl FnMut() -> TaskId {
        let now = self.estimated_now();
        // The lock lives as long as the generator, so that its ids are in sequence.
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        move || ids.next_id(now, crate::random::next_u64())
    }

    /// Applies a committed transaction's moves to the bounds.
    pub(crate) fn note_moves(&self, moves: &Moves) {
        self.claim_bounds.note(moves);
        self.look_bounds.lower(moves);
    }

    pub(crate) fn known_lane(&self, key: &LaneKey) -> Option<i64> {
        // A panic cannot leave the map half changed, so a poisoned lock is still good.
        self.lanes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .copied()
    }

    /// Remembers a lane that is committed.
    pub(crate) fn note_lane(&self, key: LaneKey, lane: i64) {
        // As in `known_lane`, a poisoned lock is still good.
        self.lanes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, lane);
    }
}
