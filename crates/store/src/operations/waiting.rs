//! Tasks that wait: who is rung for, where the lines begin, and who has waited too long.

use std::cmp::Reverse;
use std::collections::HashMap;

use async_trait::async_trait;
use longhaul_domain::{
    TaskId, Timestamp, bounds,
    contract::{broker::Bell, store::QueueHead},
};
use serde::Serialize;

use crate::{
    catalog::Statement,
    failure::Failure,
    ledger::lane_of,
    record::{self, hex, hex_list},
    row::Columns as _,
    session::{LaneHead, LaneKey, Operation, Session},
};

/// A task in its lane.
struct Waiting {
    id: TaskId,
    due_at: i64,
    lane: i64,
    /// The priority of the lane.
    standing: u8,
}

/// The first `limit` due tasks of a lane.
async fn peek(
    session: &mut dyn Session,
    head: &LaneHead,
    limit: usize,
) -> Result<Vec<Waiting>, Failure> {
    let params = [
        session.clock().into(),
        head.lane.into(),
        head.due_at.into(),
        limit.into(),
    ];
    let rows = session.fetch(Statement::PeekLane, &params).await?;
    let waiting = |row: &crate::row::SqlRow| {
        let (id, due_at) = (TaskId(row.must_id(0)?), row.must_int(1)?);
        Ok(Waiting {
            id,
            due_at,
            lane: head.lane,
            standing: head.priority,
        })
    };
    rows.iter().map(waiting).collect()
}

/// The first `limit` due tasks of several lanes together. Of each, somewhat more than its share is read; all that may be needed
/// only of those that turn out to have more.
async fn peek_all(
    session: &mut dyn Session,
    heads: &[LaneHead],
    limit: usize,
) -> Result<Vec<Waiting>, Failure> {
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

/// What is rung with for those of the tasks that still wait; each with the priority that it has by itself.
async fn read_bells(
    session: &mut dyn Session,
    ids: &[TaskId],
) -> Result<HashMap<TaskId, Bell>, Failure> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let list = hex_list(ids.iter().copied());
    let rows = session
        .fetch(Statement::ReadBells, &[(&list).into()])
        .await?;
    rows.iter()
        .map(|row| record::bell(row).map(|bell| (bell.task_id, bell)))
        .collect()
}

/// The first due tasks of a queue.
#[derive(Debug)]
pub(crate) struct ListDue {
    pub(crate) queue: String,
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for ListDue {
    type Output = Vec<Bell>;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<Bell>, Failure> {
        let mut heads = session.find_heads(Some(&self.queue)).await?;
        heads.retain(|head| !head.is_paused);
        heads.sort_by_key(|head| Reverse(head.priority));
        let mut first = Vec::new();
        // Lanes of one priority share by due time, and nothing below is read once there is enough.
        for group in heads.chunk_by(|one, other| one.priority == other.priority) {
            let wanted = self.limit - first.len();
            if wanted == 0 {
                break;
            }
            first.extend(peek_all(session, group, wanted).await?);
        }
        let ids: Vec<TaskId> = first.iter().map(|task| task.id).collect();
        let mut bells = read_bells(session, &ids).await?;
        let ring = |task: &Waiting| {
            let priority = task.standing.min(*bounds::PRIORITY.end());
            bells.remove(&task.id).map(|bell| Bell { priority, ..bell })
        };
        Ok(first.iter().filter_map(ring).collect())
    }
}

/// Where the lines of all queues begin.
#[derive(Debug)]
pub(crate) struct ListHeads;

#[async_trait]
impl Operation for ListHeads {
    type Output = Vec<QueueHead>;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<QueueHead>, Failure> {
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

/// Puts those of a queue that have waited too long before all others.
#[derive(Debug)]
pub(crate) struct BringForward {
    pub(crate) queue: String,
    pub(crate) waited_ms: u64,
    pub(crate) most: usize,
}

/// One that has waited too long, and since when.
struct Overdue {
    since: Timestamp,
    task: Waiting,
    bell: Bell,
}

/// A task that changes lanes, as the statement takes it.
#[derive(Serialize)]
struct Moved {
    id: String,
    lane_from: i64,
    lane_to: i64,
}

#[async_trait]
impl Operation for BringForward {
    type Output = usize;

    async fn run(&self, session: &mut dyn Session) -> Result<usize, Failure> {
        let now = session.now().await?;
        let mut heads = session.find_heads(Some(&self.queue)).await?;
        heads.retain(|head| !head.is_paused);
        let mut room = self.room(session, &heads).await?;
        let mut overdue = self.overdue(session, &heads, now).await?;
        overdue.sort_unstable_by_key(|one| (one.since, one.task.id));
        let mut chosen = Vec::new();
        for one in overdue {
            let of_type = room.entry(one.bell.task_type.clone()).or_insert(self.most);
            if chosen.len() < self.most && *of_type > 0 {
                *of_type -= 1;
                chosen.push(one);
            }
        }
        move_forward(session, chosen).await
    }
}

impl BringForward {
    /// How many more of a type may stand before all others, where some do.
    async fn room(
        &self,
        session: &mut dyn Session,
        heads: &[LaneHead],
    ) -> Result<HashMap<String, usize>, Failure> {
        let mut room = HashMap::new();
        for head in heads.iter().filter(|head| head.priority == bounds::FORWARD) {
            let standing = peek(session, head, self.most).await?.len();
            room.insert(head.task_type.clone(), self.most - standing);
        }
        Ok(room)
    }

    async fn overdue(
        &self,
        session: &mut dyn Session,
        heads: &[LaneHead],
        now: Timestamp,
    ) -> Result<Vec<Overdue>, Failure> {
        let is_late = |since: Timestamp| since.plus_ms(self.waited_ms) <= now;
        let mut late = Vec::new();
        for head in heads.iter().filter(|head| head.priority != bounds::FORWARD) {
            if is_late(Timestamp::from_micros(head.due_at)) {
                let first = peek(session, head, bounds::AGING_LOOK).await?;
                late.extend(
                    first
                        .into_iter()
                        .filter(|task| is_late(Timestamp::from_micros(task.due_at))),
                );
            }
        }
        let ids: Vec<TaskId> = late.iter().map(|task| task.id).collect();
        let mut bells = read_bells(session, &ids).await?;
        let with_bell = late.into_iter().filter_map(|task| {
            let bell = bells.remove(&task.id)?;
            Some(Overdue {
                since: bell.submitted_at.max(bell.due_at),
                task,
                bell,
            })
        });
        Ok(with_bell.filter(|one| is_late(one.since)).collect())
    }
}

async fn move_forward(
    session: &mut dyn Session,
    mut chosen: Vec<Overdue>,
) -> Result<usize, Failure> {
    if chosen.is_empty() {
        return Ok(0);
    }
    // Rows are locked in the order of their ids by everybody.
    chosen.sort_unstable_by_key(|one| one.task.id);
    let mut lanes: HashMap<LaneKey, i64> = HashMap::new();
    let mut moved = Vec::with_capacity(chosen.len());
    for Overdue { task, bell, .. } in chosen {
        let lane_to = lane_of(
            session,
            &mut lanes,
            (bell.queue, bell.task_type, bounds::FORWARD),
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
