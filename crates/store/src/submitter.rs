//! From checked input to a submit: ids and lanes are settled first, then one operation writes.

use longhaul_domain::{NewTask, StoreError, TaskId, contract::store::Submitted};

use crate::{
    database::{Database, Mode, told},
    operations::submit::{self, EnsureLane, SubmitTasks},
    session::LaneKey,
    sqlite::SqliteDatabase,
};

/// Submits all or none, in a transaction of the store's own.
pub(crate) async fn submit(database: &Database, tasks: &[NewTask]) -> Result<Vec<Submitted>, StoreError> {
    submit::check(tasks)?;
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let operation = prepare(database, tasks).await?;
    let plain = operation.is_plain(database.shared().outbox.is_off());
    database.run(if plain { Mode::OneStatement } else { Mode::Transaction }, &operation).await
}

/// The operation that submits `tasks`, with an id and a lane for each.
pub(crate) async fn prepare<'a>(database: &Database, tasks: &'a [NewTask]) -> Result<SubmitTasks<'a>, StoreError> {
    let mut lanes = Vec::with_capacity(tasks.len());
    let mut last: Option<(LaneKey, i64)> = None;
    for task in tasks {
        let key = submit::lane_key(task);
        let lane = match &last {
            Some((known, lane)) if *known == key => *lane,
            _ => lane_of(database, &key).await?,
        };
        lanes.push(lane);
        last = Some((key, lane));
    }
    Ok(SubmitTasks { tasks, ids: new_ids(database, tasks.len()), lanes })
}

fn new_ids(database: &Database, count: usize) -> Vec<TaskId> {
    (0..count).map(|_| database.shared().next_id()).collect()
}

/// The number of a lane, made and committed if need be: submits never wait for each other over a new lane.
async fn lane_of(database: &Database, key: &LaneKey) -> Result<i64, StoreError> {
    if let Some(lane) = database.shared().known_lane(key) {
        return Ok(lane);
    }
    let lane = database.run(Mode::Transaction, &EnsureLane { key }).await?;
    database.shared().note_lane(key.clone(), lane);
    Ok(lane)
}

/// The same inside a caller's own SQLite transaction, which may hold the one write lock: a new lane is made in
/// that transaction and remembered by nobody.
pub(crate) async fn prepare_within<'a>(
    database: &SqliteDatabase,
    connection: &mut sqlx::SqliteConnection,
    tasks: &'a [NewTask],
) -> Result<SubmitTasks<'a>, StoreError> {
    let mut lanes = Vec::with_capacity(tasks.len());
    for task in tasks {
        let key = submit::lane_key(task);
        let lane = match database.shared.known_lane(&key) {
            Some(lane) => lane,
            None => database.within(connection, &EnsureLane { key: &key }).await.map_err(told)?,
        };
        lanes.push(lane);
    }
    let ids = tasks.iter().map(|_| database.shared.next_id()).collect();
    Ok(SubmitTasks { tasks, ids, lanes })
}
