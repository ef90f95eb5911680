//! The changes of one transaction: rows locked, decisions taken, everything written at the end.
//!
//! A ledger locks tasks, takes the lifecycle's transitions, follows them up to the parents, and saves what has
//! changed with its history, counts and messages. Every save is guarded by the row that was locked.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use longhaul_domain::{
    Attempt, Task, TaskId, Timestamp,
    contract::store::Moved,
    event::OutboxMessage,
    lifecycle::{Transition, child_ended, child_ended::ChildMove},
    statistics::{Tally, TallySheet},
};

use crate::{
    catalog::Statement,
    failure::Failure,
    portions::portions,
    record::{self, AttemptRow, OutboxRow, TaskChange},
    row::Columns as _,
    session::{LaneKey, Session},
};

/// What one transaction has read and decided.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// As locked, and as decided so far.
    tasks: BTreeMap<TaskId, (Task, Task)>,
    archived: Vec<Attempt>,
    messages: Vec<OutboxMessage>,
    tallies: TallySheet,
    child_moves: BTreeMap<TaskId, Vec<ChildMove>>,
}

impl Ledger {
    /// Locks the tasks that are not locked yet. What does not exist is left out.
    pub(crate) async fn lock(
        &mut self,
        session: &mut dyn Session,
        ids: impl IntoIterator<Item = TaskId>,
    ) -> Result<(), Failure> {
        let wanted: BTreeSet<TaskId> = ids
            .into_iter()
            .filter(|id| !self.tasks.contains_key(id))
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
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

    /// The task as it is decided so far.
    pub(crate) fn get(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(&id).map(|(_, current)| current)
    }

    /// Takes a decision on a locked task.
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
        self.tallies.record_move(current, &after);
        self.archived.extend(transition.archived);
        if let Some(event) = transition.event {
            self.messages
                .extend(session.shared().outbox().messages(&after, event));
        }
        *current = after;
    }

    /// Notes that `parent` got this many new children.
    pub(crate) fn add_children(&mut self, parent: TaskId, moves: Vec<ChildMove>) {
        if !moves.is_empty() {
            self.child_moves.entry(parent).or_default().extend(moves);
        }
    }

    /// Brings the counters of a locked task up to what its children have done in this transaction.
    pub(crate) fn count_children(
        &mut self,
        session: &dyn Session,
        parent: TaskId,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let moves = self.child_moves.remove(&parent).unwrap_or_default();
        if let Some(task) = self.get(parent).filter(|_| !moves.is_empty()) {
            let transition = child_ended::decide(task, &moves, now)?;
            self.record(session, transition);
        }
        Ok(())
    }

    pub(crate) fn count_removed(&mut self, task: &Task) {
        self.tallies
            .count(&task.queue, &task.task_type, task.status, -1);
    }

    /// Carries the children's moves to their parents, up to the root, and writes everything.
    pub(crate) async fn save(
        mut self,
        session: &mut dyn Session,
        now: Timestamp,
    ) -> Result<(), Failure> {
        self.write(session, now).await
    }

    /// The same. Answers with the tasks that are at another status now, parents among them.
    pub(crate) async fn save_and_tell(
        mut self,
        session: &mut dyn Session,
        now: Timestamp,
    ) -> Result<Vec<Moved>, Failure> {
        self.write(session, now).await?;
        let has_moved = |(before, after): &(Task, Task)| before.status != after.status;
        let moved = self.tasks.into_values().filter(has_moved);
        Ok(moved
            .map(|(before, task)| Moved {
                was: before.status,
                task,
            })
            .collect())
    }

    async fn write(&mut self, session: &mut dyn Session, now: Timestamp) -> Result<(), Failure> {
        while let Some(parent) = self.child_moves.keys().next().copied() {
            // All parents that are known by now are locked together, in the order of their ids.
            let level: Vec<TaskId> = self.child_moves.keys().copied().collect();
            self.lock(session, level).await?;
            self.count_children(session, parent, now)?;
        }
        self.save_tasks(session).await?;
        self.save_companions(session).await
    }

    async fn save_tasks(&self, session: &mut dyn Session) -> Result<(), Failure> {
        let changed: Vec<&(Task, Task)> = self
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
            // A running task that is moved gets its lane too, so that its new queue is known from now on.
            if after.status.is_claimable() || moved {
                let key = (after.queue.clone(), after.task_type.clone(), after.priority);
                lane = Some(lane_of(session, &mut lanes, key).await?);
            }
            let lane = lane.filter(|_| after.status.is_claimable());
            if let Some(lane) = lane {
                session.note_requeued(lane, after.due_at.as_micros());
            }
            rows.push(TaskChange::new(before, after, lane)?);
        }
        let mut saved = 0;
        for portion in portions(&rows, TaskChange::bytes) {
            let document = serde_json::to_string(portion)?;
            saved += session
                .execute(Statement::SaveTasks, &[(&document).into()])
                .await?;
        }
        if saved != changed.len() as u64 {
            return Err(Failure::Again(format!(
                "{saved} of {} changes met the row they were decided on",
                changed.len()
            )));
        }
        Ok(())
    }

    async fn save_companions(&mut self, session: &mut dyn Session) -> Result<(), Failure> {
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
        insert_tallies(session, &std::mem::take(&mut self.tallies).into_tallies()).await?;
        insert_messages(session, &self.messages).await
    }
}

/// Appends what a transaction adds to the counts.
pub(crate) async fn insert_tallies(
    session: &mut dyn Session,
    tallies: &[Tally],
) -> Result<(), Failure> {
    if tallies.is_empty() {
        return Ok(());
    }
    session.append_tallies(tallies).await
}

/// Writes messages to the outbox.
pub(crate) async fn insert_messages(
    session: &mut dyn Session,
    messages: &[OutboxMessage],
) -> Result<(), Failure> {
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

/// The lane that claimable tasks belong to. A new one is made in this transaction, and not remembered beyond
/// it: the transaction may yet be rolled back.
pub(crate) async fn lane_of(
    session: &mut dyn Session,
    made: &mut HashMap<LaneKey, i64>,
    key: LaneKey,
) -> Result<i64, Failure> {
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

/// The lane's number, made if need be.
pub(crate) async fn find_or_make_lane(
    session: &mut dyn Session,
    key: &LaneKey,
) -> Result<i64, Failure> {
    let params = [(&key.0).into(), (&key.1).into(), i64::from(key.2).into()];
    if let Some(row) = session.fetch(Statement::FindLane, &params).await?.first() {
        return row.must_int(0);
    }
    session.execute(Statement::InsertLane, &params).await?;
    let rows = session.fetch(Statement::FindLane, &params).await?;
    rows.first()
        .ok_or_else(|| Failure::Again("the lane is being made elsewhere".to_owned()))?
        .must_int(0)
}
