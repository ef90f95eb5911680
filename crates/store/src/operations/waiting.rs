//! Waiting tasks: hints for due ones, heads of lanes, and promotion of those that waited too long.

use std::cmp::Reverse;
use std::collections::HashMap;

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, QueueName, TaskId, Timestamp, bounds,
    contract::{broker::Hint, store::QueueHead},
};
use serde::Serialize;

use super::check_limit;
use crate::{
    catalog::Statement,
    effects::lane_of,
    record::{self, hex, hex_list},
    row::Columns as _,
    session::{LaneHead, LaneKey, Mode, Operation, Session},
    sql_error::SqlError,
};

/// A task in its lane.
struct Waiting {
    id: TaskId,
    due_at: i64,
    lane: i64,
    /// The priority of the lane.
    lane_priority: u8,
}

/// The first `limit` due tasks of a lane.
async fn peek(
    session: &mut dyn Session,
    head: &LaneHead,
    limit: usize,
) -> Result<Vec<Waiting>, SqlError> {
    let params = [
        session.clock().into(),
        head.lane.into(),
        head.due_at.into(),
        limit.into(),
    ];

    let rows = session.fetch(Statement::PeekLane, &params).await?;
    let waiting = |row: &crate::row::SqlRow| {
        let id = TaskId(row.must_id(0)?);
        let due_at = row.must_int(1)?;
        Ok(Waiting {
            id,
            due_at,
            lane: head.lane,
            lane_priority: head.priority,
        })
    };

    rows.iter().map(waiting).collect()
}

/// The first `limit` due tasks of several lanes together. It reads about twice its share from each
/// lane, and up to the limit only where that was not enough.
async fn peek_all(
    session: &mut dyn Session,
    heads: &[LaneHead],
    limit: usize,
) -> Result<Vec<Waiting>, SqlError> {
    let share = if heads.len() == 1 {
        limit
    } else {
        (2 * limit / heads.len()).clamp(1, limit)
    };
    let mut waiting = Vec::new();

    for head in heads {
        waiting.extend(peek(session, head, share).await?);
    }

    let in_order = |waiting: &mut Vec<Waiting>| {
        waiting.sort_unstable_by_key(|task| (task.due_at, task.id));
        waiting.truncate(limit);
    };
    in_order(&mut waiting);

    // A lane whose whole share was used may hold more early tasks. Read it up to the limit.
    let used_up = |head: &&LaneHead| {
        share < limit && waiting.iter().filter(|task| task.lane == head.lane).count() == share
    };
    let deeper: Vec<&LaneHead> = heads.iter().filter(used_up).collect();

    for head in deeper {
        waiting.retain(|task| task.lane != head.lane);
        waiting.extend(peek(session, head, limit).await?);
    }

    in_order(&mut waiting);
    Ok(waiting)
}

/// Hints for the tasks that still wait, each with its own priority.
async fn read_hints(
    session: &mut dyn Session,
    ids: &[TaskId],
) -> Result<HashMap<TaskId, Hint>, SqlError> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }

    let list = hex_list(ids.iter().copied());
    let rows = session
        .fetch(Statement::ReadHints, &[(&list).into()])
        .await?;

    rows.iter()
        .map(|row| record::hint(row).map(|hint| (hint.task_id, hint)))
        .collect()
}

/// The first due tasks of a queue.
#[derive(Debug)]
pub(crate) struct ListDue {
    pub(crate) queue: QueueName,
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for ListDue {
    type Output = Vec<Hint>;
    const MODE: Mode = Mode::ReadOnly;

    fn check(&self) -> Result<(), Invalid> {
        check_limit(self.limit, bounds::DUE_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<Hint>, SqlError> {
        let mut heads = session.find_heads(Some(&self.queue)).await?;
        heads.retain(|head| !head.is_paused);
        heads.sort_by_key(|head| Reverse(head.priority));
        let mut first = Vec::new();

        // Lanes of one priority merge by due time. Lower priorities are read only below the limit.
        for group in heads.chunk_by(|one, other| one.priority == other.priority) {
            let wanted = self.limit - first.len();
            if wanted == 0 {
                break;
            }
            first.extend(peek_all(session, group, wanted).await?);
        }

        let ids: Vec<TaskId> = first.iter().map(|task| task.id).collect();
        let mut hints = read_hints(session, &ids).await?;
        let hint = |task: &Waiting| {
            let priority = task.lane_priority.min(*bounds::PRIORITY.end());
            hints.remove(&task.id).map(|hint| Hint { priority, ..hint })
        };

        Ok(first.iter().filter_map(hint).collect())
    }
}

/// The heads of the lanes of all queues.
#[derive(Debug)]
pub(crate) struct ListHeads;

#[async_trait]
impl Operation for ListHeads {
    type Output = Vec<QueueHead>;
    const MODE: Mode = Mode::ReadOnly;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<QueueHead>, SqlError> {
        let mut heads = session.find_heads(None).await?;
        heads.sort_by(|one, other| {
            (&one.queue, one.priority, &one.task_type).cmp(&(
                &other.queue,
                other.priority,
                &other.task_type,
            ))
        });

        let head = |head: LaneHead| QueueHead {
            queue: head.queue,
            priority: head.priority,
            task_type: head.task_type,
            due_at: Timestamp::from_micros(head.due_at),
        };
        Ok(heads.into_iter().map(head).collect())
    }
}

/// Moves tasks of a queue that waited too long ahead of all others.
#[derive(Debug)]
pub(crate) struct PromoteTasks {
    pub(crate) queue: QueueName,
    pub(crate) waited_ms: u64,
    pub(crate) most: usize,
}

/// A task that has waited too long, and since when.
struct Overdue {
    since: Timestamp,
    task: Waiting,
    hint: Hint,
}

/// A task that changes lanes, as the statement takes it.
#[derive(Serialize)]
struct Moved {
    id: String,
    lane_from: i64,
    lane_to: i64,
}

#[async_trait]
impl Operation for PromoteTasks {
    type Output = usize;

    fn check(&self) -> Result<(), Invalid> {
        bounds::check_duration_ms("waited", self.waited_ms)?;
        check_limit(self.most, bounds::CLAIM_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<usize, SqlError> {
        let now = session.now().await?;
        let mut heads = session.find_heads(Some(&self.queue)).await?;
        heads.retain(|head| !head.is_paused);
        let mut room = self.room(session, &heads).await?;
        let mut overdue = self.overdue(session, &heads, now).await?;

        overdue.sort_unstable_by_key(|one| (one.since, one.task.id));
        let mut chosen = Vec::new();
        for one in overdue {
            let of_type = room.entry(one.hint.task_type.clone()).or_insert(self.most);
            if chosen.len() < self.most && *of_type > 0 {
                *of_type -= 1;
                chosen.push(one);
            }
        }

        move_forward(session, chosen).await
    }
}

impl PromoteTasks {
    /// How many more tasks of a type may be promoted, for types that have promoted tasks.
    async fn room(
        &self,
        session: &mut dyn Session,
        heads: &[LaneHead],
    ) -> Result<HashMap<String, usize>, SqlError> {
        let mut room = HashMap::new();
        for head in heads.iter().filter(|head| head.priority == bounds::FORWARD) {
            let promoted = peek(session, head, self.most).await?.len();
            room.insert(head.task_type.clone(), self.most - promoted);
        }
        Ok(room)
    }

    async fn overdue(
        &self,
        session: &mut dyn Session,
        heads: &[LaneHead],
        now: Timestamp,
    ) -> Result<Vec<Overdue>, SqlError> {
        let is_late = |since: Timestamp| since.plus_ms(self.waited_ms) <= now;
        let mut late = Vec::new();

        for head in heads.iter().filter(|head| head.priority != bounds::FORWARD) {
            if is_late(Timestamp::from_micros(head.due_at)) {
                let first = peek(session, head, bounds::AGING_WINDOW).await?;
                late.extend(
                    first
                        .into_iter()
                        .filter(|task| is_late(Timestamp::from_micros(task.due_at))),
                );
            }
        }

        let ids: Vec<TaskId> = late.iter().map(|task| task.id).collect();
        let mut hints = read_hints(session, &ids).await?;
        let with_hint = late.into_iter().filter_map(|task| {
            let hint = hints.remove(&task.id)?;
            Some(Overdue {
                since: hint.submitted_at.max(hint.due_at),
                task,
                hint,
            })
        });

        Ok(with_hint.filter(|one| is_late(one.since)).collect())
    }
}

async fn move_forward(
    session: &mut dyn Session,
    mut chosen: Vec<Overdue>,
) -> Result<usize, SqlError> {
    if chosen.is_empty() {
        return Ok(0);
    }

    // Every transaction locks rows in the order of their ids.
    chosen.sort_unstable_by_key(|one| one.task.id);
    let mut lanes: HashMap<LaneKey, i64> = HashMap::new();
    let mut moved = Vec::with_capacity(chosen.len());

    for Overdue { task, hint, .. } in chosen {
        let lane_to = lane_of(
            session,
            &mut lanes,
            (hint.queue, hint.task_type, bounds::FORWARD),
        )
        .await?;
        session.note_requeued(lane_to, task.due_at);
        moved.push(Moved {
            id: hex(task.id.0),
            lane_from: task.lane,
            lane_to,
        });
    }

    let document = serde_json::to_string(&moved)?;
    let count = session
        .execute(Statement::MoveToLanes, &[(&document).into()])
        .await?;

    Ok(usize::try_from(count).unwrap_or(moved.len()))
}
