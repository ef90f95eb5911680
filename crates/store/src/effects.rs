//! The changes of one transaction: lock rows, record decisions, write everything at the end.
//!
//! [`TransactionEffects`] locks tasks, records the lifecycle's transitions and carries them to the
//! parents. Then it saves the changed tasks with their history, counts and messages. Each save is
//! guarded by the locked row.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use longhaul_domain::{
    Attempt, TaskId, TaskRecord, Timestamp,
    contract::store::Moved,
    event::OutboxMessage,
    lifecycle::{Transition, child_ended, child_ended::ChildMove},
    statistics::{CountSheet, TaskCount},
};

use crate::{
    catalog::Statement,
    record::{self, AttemptRow, OutboxRow, TaskChange},
    row::Columns as _,
    session::{LaneKey, Session},
    split_by_bytes::split_by_bytes,
    sql_error::SqlError,
};

/// The tasks that a transaction has locked, and its decisions.
#[derive(Debug, Default)]
pub(crate) struct TransactionEffects {
    /// Each task as locked, and as decided so far.
    tasks: BTreeMap<TaskId, (TaskRecord, TaskRecord)>,
    archived: Vec<Attempt>,
    messages: Vec<OutboxMessage>,
    task_counts: CountSheet,
    child_moves: BTreeMap<TaskId, Vec<ChildMove>>,
}

impl TransactionEffects {
    /// Locks the tasks that are not locked yet. Skips missing tasks.
    pub(crate) async fn lock(
        &mut self,
        session: &mut dyn Session,
        ids: impl IntoIterator<Item = TaskId>,
    ) -> Result<(), SqlError> {
        let wanted: BTreeSet<TaskId> = ids
            .into_iter()
            .filter(|id| !self.tasks.contains_key(id))
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }

        // One statement locks all of them; a set keeps the ids in order, which avoids deadlocks.
        let list = record::hex_list(wanted);
        for row in session
            .fetch(Statement::LockTasks, &[(&list).into()])
            .await?
        {
            let task = record::task(&row)?;
            self.tasks.insert(task.id, (task.clone(), task));
        }
        Ok(())
    }

    /// The task as decided so far.
    pub(crate) fn get(&self, id: TaskId) -> Option<&TaskRecord> {
        self.tasks.get(&id).map(|(_, current)| current)
    }

    /// Records a decision on a locked task.
    pub(crate) fn record(&mut self, session: &dyn Session, transition: Transition) {
        let after = transition.after;
        let Some((_, current)) = self.tasks.get_mut(&after.id) else {
            return;
        };

        if let Some(parent) = after.parent_id
            && let Some(step) = ChildMove::between(Some(current.status), after.status)
        {
            self.child_moves.entry(parent).or_default().push(step);
        }

        self.task_counts.record_move(current, &after);
        self.archived.extend(transition.archived);
        if let Some(event) = transition.event {
            self.messages
                .extend(session.shared().outbox().messages(&after, event));
        }
        *current = after;
    }

    /// Records these moves of children of `parent`.
    pub(crate) fn add_children(&mut self, parent: TaskId, moves: Vec<ChildMove>) {
        if !moves.is_empty() {
            self.child_moves.entry(parent).or_default().extend(moves);
        }
    }

    /// Updates a locked task's counters with its children's moves in this transaction.
    pub(crate) fn count_children(
        &mut self,
        session: &dyn Session,
        parent: TaskId,
        now: Timestamp,
    ) -> Result<(), SqlError> {
        let moves = self.child_moves.remove(&parent).unwrap_or_default();
        if moves.is_empty() {
            return Ok(());
        }

        if let Some(task) = self.get(parent) {
            let transition = child_ended::decide(task, &moves, now)?;
            self.record(session, transition);
        }
        Ok(())
    }

    pub(crate) fn count_removed(&mut self, task: &TaskRecord) {
        self.task_counts
            .count(&task.queue, &task.task_type, task.status, -1);
    }

    /// Carries the children's moves to their parents, up to the root, and writes everything.
    pub(crate) async fn save(
        mut self,
        session: &mut dyn Session,
        now: Timestamp,
    ) -> Result<(), SqlError> {
        self.write(session, now).await
    }

    /// Like `save`. Returns the tasks whose status changed, parents included.
    pub(crate) async fn save_and_tell(
        mut self,
        session: &mut dyn Session,
        now: Timestamp,
    ) -> Result<Vec<Moved>, SqlError> {
        self.write(session, now).await?;
        let has_moved = |(before, after): &(TaskRecord, TaskRecord)| before.status != after.status;
        let moved = self.tasks.into_values().filter(has_moved);
        Ok(moved
            .map(|(before, task)| Moved {
                was: before.status,
                task,
            })
            .collect())
    }

    async fn write(&mut self, session: &mut dyn Session, now: Timestamp) -> Result<(), SqlError> {
        while let Some(parent) = self.child_moves.keys().next().copied() {
            // Lock all known parents together, in the order of their ids, which avoids deadlocks.
            let level: Vec<TaskId> = self.child_moves.keys().copied().collect();
            self.lock(session, level).await?;
            self.count_children(session, parent, now)?;
        }

        // Tasks first: their guards detect a lost race before more is written.
        self.save_tasks(session).await?;
        self.save_companions(session).await
    }

    async fn save_tasks(&self, session: &mut dyn Session) -> Result<(), SqlError> {
        let changed: Vec<&(TaskRecord, TaskRecord)> = self
            .tasks
            .values()
            .filter(|(before, after)| before != after)
            .collect();
        if changed.is_empty() {
            return Ok(());
        }

        let mut lanes = HashMap::new();
        let mut rows = Vec::with_capacity(changed.len());
        for (before, after) in &changed {
            let moved = before.queue != after.queue || before.priority != after.priority;
            let mut lane = None;

            // Find the new lane of a moved running task too, so that its new queue is known.
            if after.status.is_claimable() || moved {
                let key = (after.queue.clone(), after.task_type.clone(), after.priority);
                lane = Some(lane_of(session, &mut lanes, key).await?);
            }

            if !after.status.is_claimable() {
                lane = None;
            }
            if let Some(lane) = lane {
                session.note_requeued(lane, after.due_at.as_micros());
            }

            rows.push(TaskChange::new(before, after, lane)?);
        }

        let mut saved = 0;
        for chunk in split_by_bytes(&rows, TaskChange::bytes) {
            let document = serde_json::to_string(chunk)?;
            saved += session
                .execute(Statement::SaveTasks, &[(&document).into()])
                .await?;
        }

        if saved != changed.len() as u64 {
            return Err(SqlError::LostRace(format!(
                "{saved} of {} changes met the row they were decided on",
                changed.len()
            )));
        }

        Ok(())
    }

    async fn save_companions(&mut self, session: &mut dyn Session) -> Result<(), SqlError> {
        if !self.archived.is_empty() {
            let rows = std::mem::take(&mut self.archived)
                .into_iter()
                .map(AttemptRow::new)
                .collect::<Result<Vec<_>, _>>()?;
            let document = serde_json::to_string(&rows)?;
            session
                .execute(Statement::InsertAttempts, &[(&document).into()])
                .await?;
        }

        insert_task_counts(
            session,
            &std::mem::take(&mut self.task_counts).into_task_counts(),
        )
        .await?;
        insert_messages(session, &self.messages).await
    }
}

/// Appends a transaction's changes to the counts.
pub(crate) async fn insert_task_counts(
    session: &mut dyn Session,
    task_counts: &[TaskCount],
) -> Result<(), SqlError> {
    if task_counts.is_empty() {
        return Ok(());
    }
    session.append_task_counts(task_counts).await
}

/// Writes messages to the outbox.
pub(crate) async fn insert_messages(
    session: &mut dyn Session,
    messages: &[OutboxMessage],
) -> Result<(), SqlError> {
    if messages.is_empty() {
        return Ok(());
    }

    let rows = messages
        .iter()
        .map(OutboxRow::new)
        .collect::<Result<Vec<_>, _>>()?;
    let document = serde_json::to_string(&rows)?;
    let clock = session.clock();

    session
        .execute(Statement::InsertOutbox, &[clock.into(), (&document).into()])
        .await?;
    Ok(())
}

/// The lane of claimable tasks. A lane made in this transaction is not remembered beyond it: the
/// transaction may be rolled back.
pub(crate) async fn lane_of(
    session: &mut dyn Session,
    made: &mut HashMap<LaneKey, i64>,
    key: LaneKey,
) -> Result<i64, SqlError> {
    let lane = match session
        .shared()
        .known_lane(&key)
        .or_else(|| made.get(&key).copied())
    {
        Some(lane) => lane,
        None => find_or_make_lane(session, &key).await?,
    };
    made.insert(key, lane);
    Ok(lane)
}

/// The lane's number. Makes the lane if it does not exist.
pub(crate) async fn find_or_make_lane(
    session: &mut dyn Session,
    key: &LaneKey,
) -> Result<i64, SqlError> {
    let params = [
        key.0.as_str().into(),
        (&key.1).into(),
        i64::from(key.2).into(),
    ];
    if let Some(row) = session.fetch(Statement::FindLane, &params).await?.first() {
        return row.must_int(0);
    }

    session.execute(Statement::InsertLane, &params).await?;
    let rows = session.fetch(Statement::FindLane, &params).await?;
    rows.first()
        .ok_or_else(|| SqlError::LostRace("the lane is being made elsewhere".to_owned()))?
        .must_int(0)
}
