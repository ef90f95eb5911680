//! Claim: due tasks, in the store's order, for a node that lives.

use std::cmp::Reverse;
use std::collections::HashMap;

use async_trait::async_trait;
use longhaul_domain::{
    NodeId, Status, StoreError, Task, TaskId,
    contract::store::{ClaimNamed, ClaimRequest},
    event::EventKind,
    statistics::{Tally, TallySheet},
};

use crate::{
    catalog::{Sql, Statement},
    failure::Failure,
    ledger,
    record::{self, hex_list},
    row::{Columns as _, SqlRow},
    session::{Operation, Session},
};

/// Takes up to `limit` tasks.
#[derive(Debug)]
pub(crate) struct ClaimTasks {
    pub(crate) request: ClaimRequest,
}

#[async_trait]
impl Operation for ClaimTasks {
    type Output = Vec<Task>;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<Task>, Failure> {
        let claimed = session.claim_tasks(&self.request).await?;
        if claimed.is_empty() {
            check_node(session, self.request.node_id).await?;
        }
        tell_started(session, &claimed).await?;
        Ok(claimed)
    }
}

/// Takes those of the named tasks that can be claimed.
#[derive(Debug)]
pub(crate) struct ClaimTheNamed {
    pub(crate) request: ClaimNamed,
}

#[async_trait]
impl Operation for ClaimTheNamed {
    type Output = Vec<Task>;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<Task>, Failure> {
        let claimed = session.claim_named(&self.request).await?;
        if claimed.is_empty() {
            check_node(session, self.request.node_id).await?;
        }
        tell_started(session, &claimed).await?;
        Ok(claimed)
    }
}

/// Writes the messages of claims, if the policy wants any.
async fn tell_started(session: &mut dyn Session, claimed: &[Task]) -> Result<(), Failure> {
    let policy = session.shared().outbox();
    let messages: Vec<_> = claimed.iter().flat_map(|task| policy.messages(task, EventKind::Started)).collect();
    ledger::insert_messages(session, &messages).await
}

/// Refuses a node that is unknown or was declared dead.
pub(crate) async fn check_node(session: &mut dyn Session, node: NodeId) -> Result<(), Failure> {
    match session.fetch(Statement::FindLiveNode, &[node.0.into()]).await?.is_empty() {
        true => Err(StoreError::NodeLost.into()),
        false => Ok(()),
    }
}

/// The two statements that look where due tasks are, in a database that cannot claim in one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneLook {
    pub(crate) lanes: &'static Sql,
    pub(crate) peek: &'static Sql,
}

/// The statements of a claim that takes rows which other writers may want, too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneStatements {
    pub(crate) look: LaneLook,
    pub(crate) pick: &'static Sql,
    pub(crate) take: &'static Sql,
}

pub(crate) struct Lane {
    id: i64,
    pub(crate) priority: i64,
}

/// Who claims.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimant<'a> {
    pub(crate) node: NodeId,
    pub(crate) host: &'a str,
}

/// A task that is about to be taken.
pub(crate) struct Picked {
    id: TaskId,
    status: Status,
    /// What the database takes it by.
    key: String,
    /// The priority of the lane that it stands in.
    standing: i64,
}

impl Picked {
    /// From a row with id, due time, status and key.
    pub(crate) fn from_row(row: &SqlRow, standing: i64) -> Result<Self, Failure> {
        Ok(Self { id: TaskId(row.must_id(0)?), status: record::status(row, 2)?, key: row.must_text(3)?, standing })
    }
}

/// Claimed tasks in the order of claims; each comes with the priority of the lane that it stood in.
pub(crate) fn in_order(mut claimed: Vec<(i64, Task)>) -> Vec<Task> {
    claimed.sort_by_key(|(standing, task)| (Reverse(*standing), task.due_at, task.id));
    claimed.into_iter().map(|(_, task)| task).collect()
}

/// Claims lane by lane, highest priority first; lanes of one priority share by due time.
pub(crate) async fn claim_by_lanes(
    session: &mut dyn Session,
    own: &LaneStatements,
    request: &ClaimRequest,
) -> Result<Vec<Task>, Failure> {
    let mut picked = Vec::new();
    for group in open_lanes(session, &own.look, request).await? {
        let wanted = request.limit - picked.len();
        if wanted == 0 {
            break;
        }
        for (lane, share) in shares(session, &own.look, &group, wanted).await? {
            let params = [session.clock().into(), lane.into(), share.into()];
            for row in session.fetch_sql(own.pick, &params).await? {
                picked.push(Picked::from_row(&row, group[0].priority)?);
            }
        }
    }
    take(session, own.take, Claimant { node: request.node_id, host: &request.host }, &picked).await
}

/// The lanes that hold due tasks, grouped by priority.
pub(crate) async fn open_lanes(
    session: &mut dyn Session,
    look: &LaneLook,
    request: &ClaimRequest,
) -> Result<Vec<Vec<Lane>>, Failure> {
    let (queues, types) = (serde_json::to_string(&request.queues)?, serde_json::to_string(&request.task_types)?);
    let params = [session.clock().into(), (&queues).into(), (&types).into(), request.node_id.0.into()];
    let mut lanes = Vec::new();
    for row in session.fetch_sql(look.lanes, &params).await? {
        if row.int(2)?.is_some() {
            lanes.push(Lane { id: row.must_int(0)?, priority: row.must_int(1)? });
        }
    }
    lanes.sort_by_key(|lane| Reverse(lane.priority));
    let mut groups: Vec<Vec<Lane>> = Vec::new();
    for lane in lanes {
        match groups.last_mut().filter(|group| group[0].priority == lane.priority) {
            Some(group) => group.push(lane),
            None => groups.push(vec![lane]),
        }
    }
    Ok(groups)
}

/// How many of the first `wanted` tasks of a group each lane holds.
pub(crate) async fn shares(
    session: &mut dyn Session,
    look: &LaneLook,
    group: &[Lane],
    wanted: usize,
) -> Result<Vec<(i64, usize)>, Failure> {
    if let [only] = group {
        return Ok(vec![(only.id, wanted)]);
    }
    let mut heads = Vec::new();
    for lane in group {
        let params = [session.clock().into(), lane.id.into(), wanted.into()];
        for row in session.fetch_sql(look.peek, &params).await? {
            heads.push((row.must_int(1)?, row.must_id(0)?, lane.id));
        }
    }
    heads.sort_unstable();
    let mut shares: HashMap<i64, usize> = HashMap::new();
    for (_, _, lane) in heads.into_iter().take(wanted) {
        *shares.entry(lane).or_default() += 1;
    }
    Ok(shares.into_iter().collect())
}

/// Claims the tasks that were picked and locked.
pub(crate) async fn take(
    session: &mut dyn Session,
    statement: &'static Sql,
    claimant: Claimant<'_>,
    picked: &[Picked],
) -> Result<Vec<Task>, Failure> {
    if picked.is_empty() {
        return Ok(Vec::new());
    }
    let list = hex_list(picked.iter().map(|task| task.id));
    let keys = serde_json::to_string(&picked.iter().map(|task| &task.key).collect::<Vec<_>>())?;
    let params = [session.clock().into(), (&keys).into(), claimant.node.0.into(), claimant.host.into()];
    session.execute_sql(statement, &params).await?;
    let rows = session.fetch(Statement::ReadTasks, &[(&list).into()]).await?;
    let tasks = rows.iter().map(record::task).collect::<Result<Vec<_>, _>>()?;
    if tasks.iter().filter(|task| task.status == Status::Running).count() != picked.len() {
        return Err(Failure::Again("a picked task was taken by another".to_owned()));
    }
    ledger::insert_tallies(session, &tallies(&tasks, picked)).await?;
    let standings: HashMap<TaskId, i64> = picked.iter().map(|task| (task.id, task.standing)).collect();
    Ok(in_order(tasks.into_iter().map(|task| (standings[&task.id], task)).collect()))
}

fn tallies(tasks: &[Task], picked: &[Picked]) -> Vec<Tally> {
    let was: HashMap<TaskId, Status> = picked.iter().map(|task| (task.id, task.status)).collect();
    let mut sheet = TallySheet::default();
    for task in tasks {
        let before = was.get(&task.id).copied().unwrap_or(Status::Queued);
        sheet.count(&task.queue, &task.task_type, before, -1);
        sheet.count(&task.queue, &task.task_type, task.status, 1);
    }
    sheet.into_tallies()
}
