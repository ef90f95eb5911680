//! Submit: tasks, idempotency keys, parent counters and messages in one transaction.

use std::collections::HashMap;

use async_trait::async_trait;
use longhaul_domain::{
    Idempotency, Invalid, NewTask, Status, StoreError, TaskId, TaskRecord, bounds,
    contract::store::{ClaimRequest, Submitted},
    event::EventKind,
    lifecycle::{child_ended::ChildMove, heartbeat},
    statistics::CountSheet,
};
use serde::Serialize;

use crate::{
    catalog::Statement,
    effects::{self, TransactionEffects},
    record::{self, hex, hex_list},
    row::{Columns as _, SqlRow},
    session::{LaneKey, Operation, Session, Submission, task_bytes},
    split_by_bytes::split_by_bytes,
    sql_error::SqlError,
};

/// Creates all tasks or none. Ids are fixed before, so a repeat creates no second task.
#[derive(Debug)]
pub(crate) struct SubmitTasks {
    pub(crate) tasks: Vec<NewTask>,
    pub(crate) ids: Vec<TaskId>,
    /// Lanes known to be committed. The others are created with the tasks, so a refused submit
    /// leaves nothing behind.
    pub(crate) lanes: Vec<Option<i64>>,
}

/// Refuses a batch that is too large, holds an invalid task, or names more than one parent.
pub(crate) fn check(tasks: &[NewTask]) -> Result<(), Invalid> {
    bounds::check_batch("tasks", tasks.len(), bounds::SUBMIT_BATCH)?;
    tasks.iter().try_for_each(NewTask::check)?;
    let mut parents = tasks.iter().filter_map(|task| task.parent);
    let first = parents.next();
    if parents.any(|parent| Some(parent) != first) {
        return Err(Invalid::new(
            "parent",
            "differs within one batch",
            "one parent for all children of a batch",
        ));
    }

    Ok(())
}

/// Whether two new tasks belong to the same lane.
pub(crate) fn is_same_lane(one: &NewTask, other: &NewTask) -> bool {
    (&one.queue, &one.task_type, one.priority) == (&other.queue, &other.task_type, other.priority)
}

/// The lane of a new task.
pub(crate) fn lane_key(task: &NewTask) -> LaneKey {
    (
        task.queue.clone(),
        task.task_type.to_string(),
        task.priority,
    )
}

impl SubmitTasks {
    /// Whether the tasks fit into one statement.
    pub(crate) fn is_one_statement(&self) -> bool {
        split_by_bytes(&self.tasks, task_bytes).len() == 1
    }

    async fn insert(&self, session: &mut dyn Session, fresh: &[usize]) -> Result<(), SqlError> {
        if fresh.is_empty() {
            return Ok(());
        }

        let submissions = self.with_lanes(session, fresh).await?;
        let mut sheet = CountSheet::default();

        // Consecutive tasks of one lane are counted together.
        for alike in submissions.chunk_by(|one, next| one.lane == next.lane) {
            let first = alike[0].task;
            let count = i64::try_from(alike.len()).unwrap_or(i64::MAX);
            sheet.count(&first.queue, &first.task_type, Status::Queued, count);
        }

        for submission in &submissions {
            if let longhaul_domain::RunAt::At(moment) = submission.task.run_at {
                session.note_requeued(submission.lane, moment.as_micros());
            }
        }

        let mut task_counts = sheet.into_task_counts();
        for chunk in split_by_bytes(&submissions, Submission::bytes) {
            session.insert_tasks(chunk, &task_counts).await?;
            // The first statement carries all counts.
            task_counts.clear();
        }

        Ok(())
    }

    async fn with_lanes(
        &self,
        session: &mut dyn Session,
        fresh: &[usize],
    ) -> Result<Vec<Submission<'_>>, SqlError> {
        let mut submissions = Vec::with_capacity(fresh.len());
        let mut made: HashMap<LaneKey, i64> = HashMap::new();

        for index in fresh {
            let id = self.ids[*index];
            let task = &self.tasks[*index];
            let lane = match self.lanes[*index] {
                Some(lane) => lane,
                None => {
                    let key = lane_key(task);
                    let lane = match made.get(&key) {
                        Some(lane) => *lane,
                        None => effects::find_or_make_lane(session, &key).await?,
                    };
                    made.insert(key, lane);
                    lane
                }
            };

            submissions.push(Submission::new(id, lane, task)?);
        }

        Ok(submissions)
    }

    /// Writes the messages about new tasks, if the policy selects any.
    async fn tell(&self, session: &mut dyn Session, fresh: &[usize]) -> Result<(), SqlError> {
        let events = &session.shared().outbox().events;
        let told = fresh
            .iter()
            .filter(|index| events.selects(EventKind::Submitted, &self.tasks[**index].task_type));

        let told: Vec<TaskId> = told.map(|index| self.ids[*index]).collect();
        if told.is_empty() {
            return Ok(());
        }

        let list = hex_list(told);
        let mut messages = Vec::new();
        for row in session
            .fetch(Statement::ReadTasks, &[(&list).into()])
            .await?
        {
            messages.extend(
                session
                    .shared()
                    .outbox()
                    .messages(&record::task(&row)?, EventKind::Submitted),
            );
        }

        effects::insert_messages(session, &messages).await
    }
}

#[async_trait]
impl Operation for SubmitTasks {
    type Output = Vec<Submitted>;

    async fn run(&self, session: &mut dyn Session) -> Result<Self::Output, SqlError> {
        let parent = self.tasks.iter().find_map(|task| task.parent);
        let mut effects = TransactionEffects::default();
        if let Some(lease) = &parent {
            // The parent stays locked: its attempt cannot end while it gets children.
            effects.lock(session, [lease.task_id]).await?;
            let task = effects
                .get(lease.task_id)
                .ok_or(SqlError::Store(StoreError::NotFound))?;
            heartbeat::decide(task, lease)?;
        }

        let answers = settle_keys(session, &self.tasks, &self.ids).await?;
        let fresh: Vec<usize> = (0..self.tasks.len())
            .filter(|index| !answers[*index].repeated)
            .collect();

        if let Some(lease) = &parent {
            let children = fresh
                .iter()
                .filter(|index| self.tasks[**index].parent.is_some())
                .count();
            let made = ChildMove {
                from: None,
                to: Status::Queued,
            };

            effects.add_children(lease.task_id, vec![made; children]);
            let now = session.now().await?;
            effects.save(session, now).await?;
        }

        self.insert(session, &fresh).await?;

        // Messages are made from the inserted rows.
        self.tell(session, &fresh).await?;
        Ok(answers)
    }
}

/// An idempotency key as `take_idempotency_keys` takes it.
#[derive(Serialize)]
struct KeyRow<'a> {
    owner: &'a str,
    idempotency_key: &'a str,
    digest: String,
    task_id: String,
    ttl_us: u64,
}

/// Decides for each task whether it is new or repeats an earlier submit.
async fn settle_keys(
    session: &mut dyn Session,
    tasks: &[NewTask],
    ids: &[TaskId],
) -> Result<Vec<Submitted>, SqlError> {
    let mut answers: Vec<Submitted> = ids
        .iter()
        .map(|id| Submitted {
            task_id: *id,
            repeated: false,
        })
        .collect();

    let mut first: HashMap<(&str, &str), usize> = HashMap::new();
    let mut rows = Vec::new();
    for (index, task) in tasks.iter().enumerate() {
        let Some(idempotency) = &task.idempotency else {
            continue;
        };
        let at = *first
            .entry((&task.owner, &idempotency.key))
            .or_insert(index);
        if at == index {
            rows.push(key_row(task, idempotency, ids[index]));
        }
    }

    if rows.is_empty() {
        return Ok(answers);
    }

    let found = take_and_read(session, &mut rows).await?;
    for (index, task) in tasks.iter().enumerate() {
        let Some(idempotency) = &task.idempotency else {
            continue;
        };

        let key = (task.owner.to_string(), idempotency.key.clone());
        let (digest, task_id) = found
            .get(&key)
            .ok_or_else(|| SqlError::LostRace("the key was removed at this moment".to_owned()))?;
        if *digest != digest_text(idempotency) {
            return Err(StoreError::IdempotencyMismatch.into());
        }

        answers[index] = Submitted {
            task_id: *task_id,
            repeated: *task_id != ids[index],
        };
    }

    Ok(answers)
}

type FoundKeys = HashMap<(String, String), (String, TaskId)>;

async fn take_and_read(
    session: &mut dyn Session,
    rows: &mut [KeyRow<'_>],
) -> Result<FoundKeys, SqlError> {
    // Sorted, so that concurrent submits take the same keys in one order.
    rows.sort_by_key(|row| (row.owner, row.idempotency_key));
    let document = serde_json::to_string(rows)?;
    let clock = session.clock();
    session
        .execute(
            Statement::TakeIdempotencyKeys,
            &[clock.into(), (&document).into()],
        )
        .await?;

    let found = session
        .fetch(Statement::ReadIdempotencyKeys, &[(&document).into()])
        .await?;
    let read = |row: &SqlRow| {
        let key = (row.must_text(0)?, row.must_text(1)?);
        Ok((key, (row.must_text(2)?, TaskId(row.must_id(3)?))))
    };

    found.iter().map(read).collect()
}

fn key_row<'a>(task: &'a NewTask, idempotency: &'a Idempotency, id: TaskId) -> KeyRow<'a> {
    KeyRow {
        owner: &task.owner,
        idempotency_key: &idempotency.key,
        digest: digest_text(idempotency),
        task_id: hex(id.0),
        ttl_us: idempotency.ttl_ms.saturating_mul(1_000),
    }
}

fn digest_text(idempotency: &Idempotency) -> String {
    hex::encode(idempotency.digest)
}

/// Creates tasks and claims due ones, in one transaction.
#[derive(Debug)]
pub(crate) struct SubmitAndClaim {
    pub(crate) submit: SubmitTasks,
    pub(crate) claim: ClaimRequest,
}

#[async_trait]
impl Operation for SubmitAndClaim {
    type Output = (Vec<Submitted>, Vec<TaskRecord>);

    async fn run(&self, session: &mut dyn Session) -> Result<Self::Output, SqlError> {
        let submitted = self.submit.run(session).await?;
        Ok((submitted, self.claim.run(session).await?))
    }
}

/// Creates a missing lane in a transaction of its own.
#[derive(Debug)]
pub(crate) struct EnsureLane {
    pub(crate) key: LaneKey,
}

#[async_trait]
impl Operation for EnsureLane {
    type Output = i64;

    async fn run(&self, session: &mut dyn Session) -> Result<i64, SqlError> {
        effects::find_or_make_lane(session, &self.key).await
    }
}
