//! Submits checked tasks: finds ids and lanes first, then writes in one operation.

use std::time::Instant;

use longhaul_domain::{NewTask, StoreError, TaskId, contract::store::Submitted, event::EventKind};

use crate::{
    database::Database,
    operations::submit::{self, EnsureLane, SubmitTasks},
    session::{LaneKey, Mode, Shared},
    sqlite::SqliteDatabase,
};

/// Submits all tasks or none, in the store's own transaction. All its operations share the
/// deadline.
pub(crate) async fn submit(
    database: &Database,
    deadline: Instant,
    tasks: Vec<NewTask>,
) -> Result<Vec<Submitted>, StoreError> {
    submit::check(&tasks)?;
    if tasks.is_empty() {
        return Ok(Vec::new());
    }

    let events = &database.shared().outbox().events;
    let is_plain = |task: &NewTask| {
        task.idempotency.is_none()
            && task.parent.is_none()
            && !events.selects(EventKind::Submitted, &task.task_type)
    };
    if tasks.iter().all(is_plain) {
        let operation = prepare(database, deadline, tasks).await?;
        let mode = if operation.is_one_statement() {
            Mode::OneStatement
        } else {
            Mode::Transaction
        };
        return database.run_in(mode, deadline, operation).await;
    }

    let lanes: Vec<_> = tasks
        .iter()
        .map(|task| database.shared().known_lane(&submit::lane_key(task)))
        .collect();
    let unknown = tasks
        .iter()
        .zip(&lanes)
        .map(|(task, lane)| lane.is_none().then(|| submit::lane_key(task)));
    let unknown: Vec<Option<LaneKey>> = unknown.collect();

    let operation = SubmitTasks {
        ids: ids_of(database.shared(), &tasks),
        tasks,
        lanes,
    };
    let submitted = database.run(deadline, operation).await?;

    // Remember new lanes only after the commit.
    for (key, made) in unknown.into_iter().zip(&submitted) {
        if let Some(key) = key
            && !made.repeated
        {
            lane_of(database, deadline, key).await?;
        }
    }

    Ok(submitted)
}

/// The operation that submits `tasks`. Each task has its id, and all lanes are committed before, so
/// that no submit waits for another's transaction over a new lane.
pub(crate) async fn prepare(
    database: &Database,
    deadline: Instant,
    tasks: Vec<NewTask>,
) -> Result<SubmitTasks, StoreError> {
    let mut lanes = Vec::with_capacity(tasks.len());
    let mut last: Option<(&NewTask, i64)> = None;

    for task in &tasks {
        let lane = match last {
            Some((known, lane)) if submit::is_same_lane(known, task) => lane,
            _ => lane_of(database, deadline, submit::lane_key(task)).await?,
        };
        lanes.push(Some(lane));
        last = Some((task, lane));
    }

    Ok(SubmitTasks {
        ids: ids_of(database.shared(), &tasks),
        tasks,
        lanes,
    })
}

fn ids_of(shared: &Shared, tasks: &[NewTask]) -> Vec<TaskId> {
    let mut next_id = shared.next_ids();
    tasks
        .iter()
        .map(|task| task.id.unwrap_or_else(&mut next_id))
        .collect()
}

async fn lane_of(database: &Database, deadline: Instant, key: LaneKey) -> Result<i64, StoreError> {
    if let Some(lane) = database.shared().known_lane(&key) {
        return Ok(lane);
    }

    let operation = EnsureLane { key: key.clone() };
    let lane = database.run(deadline, operation).await?;
    database.shared().note_lane(key, lane);
    Ok(lane)
}

/// Like `prepare`, for a caller's own SQLite transaction. It may hold the write lock, so new lanes
/// are made in that transaction and are not remembered.
pub(crate) fn prepare_within(database: &SqliteDatabase, tasks: Vec<NewTask>) -> SubmitTasks {
    let lanes = tasks
        .iter()
        .map(|task| database.shared.known_lane(&submit::lane_key(task)))
        .collect();

    SubmitTasks {
        ids: ids_of(&database.shared, &tasks),
        tasks,
        lanes,
    }
}
