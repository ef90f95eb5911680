//! Claim: due tasks, in the store's order, for a node that lives.

use std::cmp::Reverse;

use async_trait::async_trait;
use longhaul_domain::{
    NodeId, StoreError, Task,
    contract::store::{ClaimNamed, ClaimRequest},
    event::EventKind,
};

use crate::{
    catalog::{Sql, Statement},
    failure::Failure,
    ledger,
    row::Columns as _,
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
    let messages: Vec<_> = claimed
        .iter()
        .flat_map(|task| policy.messages(task, EventKind::Started))
        .collect();
    ledger::insert_messages(session, &messages).await
}

/// Refuses a node that is unknown or was declared dead.
pub(crate) async fn check_node(session: &mut dyn Session, node: NodeId) -> Result<(), Failure> {
    match session
        .fetch(Statement::FindLiveNode, &[node.0.into()])
        .await?
        .is_empty()
    {
        true => Err(StoreError::NodeLost.into()),
        false => Ok(()),
    }
}

/// Tasks that only differ in their due time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    pub(crate) id: i64,
    pub(crate) priority: i64,
    /// From when on its tasks are looked for.
    pub(crate) from: i64,
}

/// Who claims.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimant<'a> {
    pub(crate) node: NodeId,
    pub(crate) host: &'a str,
}

/// Claimed tasks in the order of claims; each comes with the priority of the lane that it stood in.
pub(crate) fn in_order(mut claimed: Vec<(i64, Task)>) -> Vec<Task> {
    claimed.sort_by_key(|(standing, task)| (Reverse(*standing), task.due_at, task.id));
    claimed.into_iter().map(|(_, task)| task).collect()
}

/// The lanes that hold due tasks, grouped by priority, as one statement finds them.
pub(crate) async fn open_lanes(
    session: &mut dyn Session,
    lanes: &'static Sql,
    request: &ClaimRequest,
) -> Result<Vec<Vec<Lane>>, Failure> {
    let (queues, types) = (
        serde_json::to_string(&request.queues)?,
        serde_json::to_string(&request.task_types)?,
    );
    let params = [
        session.clock().into(),
        (&queues).into(),
        (&types).into(),
        request.node_id.0.into(),
    ];
    let mut open = Vec::new();
    for row in session.fetch_sql(lanes, &params).await? {
        if row.int(2)?.is_some() {
            open.push(Lane {
                id: row.must_int(0)?,
                priority: row.must_int(1)?,
                from: 0,
            });
        }
    }
    Ok(by_priority(open))
}

/// Groups of one priority, highest first.
pub(crate) fn by_priority(mut lanes: Vec<Lane>) -> Vec<Vec<Lane>> {
    lanes.sort_by_key(|lane| Reverse(lane.priority));
    let mut groups: Vec<Vec<Lane>> = Vec::new();
    for lane in lanes {
        match groups
            .last_mut()
            .filter(|group| group[0].priority == lane.priority)
        {
            Some(group) => group.push(lane),
            None => groups.push(vec![lane]),
        }
    }
    groups
}

/// How many of the first `wanted` tasks of a group each lane holds.
pub(crate) async fn shares<'g>(
    session: &mut dyn Session,
    peek: &'static Sql,
    group: &'g [Lane],
    wanted: usize,
) -> Result<Vec<(&'g Lane, usize)>, Failure> {
    if let [only] = group {
        return Ok(vec![(only, wanted)]);
    }
    let mut heads = Vec::new();
    for (place, lane) in group.iter().enumerate() {
        let params = [
            session.clock().into(),
            lane.id.into(),
            wanted.into(),
            lane.from.into(),
        ];
        for row in session.fetch_sql(peek, &params).await? {
            heads.push((row.must_int(1)?, row.must_id(0)?, place));
        }
    }
    heads.sort_unstable();
    let mut shares = vec![0; group.len()];
    for (_, _, place) in heads.into_iter().take(wanted) {
        shares[place] += 1;
    }
    Ok(group
        .iter()
        .zip(shares)
        .filter(|(_, share)| *share > 0)
        .collect())
}
