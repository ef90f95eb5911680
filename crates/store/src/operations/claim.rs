//! Claim: due tasks in the store's order, for a live node.

use std::cmp::Reverse;

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, NodeId, StoreError, TaskRecord, bounds,
    contract::store::{ClaimNamed, ClaimRequest},
    event::EventKind,
};

use super::{check_limit, check_types};
use crate::{
    catalog::{Sql, Statement},
    effects,
    row::Columns as _,
    session::{Mode, Operation, Session, Shared},
    sql_error::SqlError,
};

/// Claims up to `limit` due tasks.
#[async_trait]
impl Operation for ClaimRequest {
    type Output = Vec<TaskRecord>;

    fn mode(&self, shared: &Shared) -> Mode {
        claim_mode(shared, &self.task_types)
    }

    fn check(&self) -> Result<(), Invalid> {
        check_limit(self.limit, bounds::CLAIM_BATCH)?;
        bounds::check_name("host", &self.host)?;
        check_types(&self.task_types)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<TaskRecord>, SqlError> {
        let claimed = session.claim_tasks(self).await?;
        if claimed.is_empty() {
            check_node(session, self.node_id).await?;
        }

        write_started(session, &claimed).await?;
        Ok(claimed)
    }
}

/// Claims the named tasks that are claimable.
#[async_trait]
impl Operation for ClaimNamed {
    type Output = Vec<TaskRecord>;

    fn mode(&self, shared: &Shared) -> Mode {
        claim_mode(shared, &self.task_types)
    }

    fn check(&self) -> Result<(), Invalid> {
        bounds::check_batch("ids", self.ids.len(), bounds::CLAIM_BATCH)?;
        bounds::check_name("host", &self.host)?;
        check_types(&self.task_types)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<TaskRecord>, SqlError> {
        let claimed = session.claim_named(self).await?;
        if claimed.is_empty() {
            check_node(session, self.node_id).await?;
        }

        write_started(session, &claimed).await?;
        Ok(claimed)
    }
}

/// A claim that writes messages needs a transaction.
fn claim_mode(shared: &Shared, task_types: &[String]) -> Mode {
    let events = &shared.outbox().events;
    let has_messages = task_types
        .iter()
        .any(|name| events.selects(EventKind::Started, name));

    match has_messages {
        true => Mode::Transaction,
        false => Mode::OneStatement,
    }
}

/// Writes the messages of claims, if the policy selects any.
async fn write_started(session: &mut dyn Session, claimed: &[TaskRecord]) -> Result<(), SqlError> {
    let policy = session.shared().outbox();
    let messages: Vec<_> = claimed
        .iter()
        .flat_map(|task| policy.messages(task, EventKind::Started))
        .collect();
    effects::insert_messages(session, &messages).await
}

/// Refuses a node that is unknown or declared dead.
pub(crate) async fn check_node(session: &mut dyn Session, node: NodeId) -> Result<(), SqlError> {
    match session
        .fetch(Statement::FindLiveNode, &[node.0.into()])
        .await?
        .is_empty()
    {
        true => Err(StoreError::NodeLost.into()),
        false => Ok(()),
    }
}

/// Tasks that differ only in due time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    pub(crate) id: i64,
    pub(crate) priority: i64,
    /// Its tasks are searched from this due time on.
    pub(crate) from: i64,
}

/// The node that claims.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimant<'a> {
    pub(crate) node: NodeId,
    pub(crate) host: &'a str,
}

/// Claimed tasks in claim order. Each comes with the priority of its lane.
pub(crate) fn in_order(mut claimed: Vec<(i64, TaskRecord)>) -> Vec<TaskRecord> {
    claimed.sort_by_key(|(lane_priority, task)| (Reverse(*lane_priority), task.due_at, task.id));
    claimed.into_iter().map(|(_, task)| task).collect()
}

/// The lanes with due tasks, grouped by priority.
pub(crate) async fn open_lanes(
    session: &mut dyn Session,
    lanes: &'static Sql,
    request: &ClaimRequest,
) -> Result<Vec<Vec<Lane>>, SqlError> {
    let queues = serde_json::to_string(&request.queues)?;
    let types = serde_json::to_string(&request.task_types)?;
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

/// Lanes grouped by priority, highest first.
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
) -> Result<Vec<(&'g Lane, usize)>, SqlError> {
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
