//! Host affinity: for a while after a rescue, only nodes of the host that a task ran on may claim
//! it.

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, TaskId, TaskRecord,
    contract::store::{ClaimNamed, ClaimRequest},
    lifecycle::rescue,
};
use serde::Serialize;

use super::claim::check_node;
use crate::{
    catalog::Statement,
    effects::TransactionEffects,
    record::{hex, hex_list},
    row::Columns as _,
    session::{Operation, Session},
    sql_error::SqlError,
};

/// A task and its reserved host, as the statement takes it.
#[derive(Serialize)]
struct AffinityRow {
    task_id: String,
    host: String,
    /// From then on every node may claim it. A task with another due time was moved since, and its
    /// reservation no longer counts.
    due_at: i64,
}

/// Reserves rescued tasks for the host that they ran on.
pub(crate) async fn keep(
    session: &mut dyn Session,
    rescued: &[TaskRecord],
) -> Result<(), SqlError> {
    let kept = rescued.iter().filter(|task| task.status.is_claimable());
    let row = |task: &TaskRecord| {
        let task_id = hex(task.id.0);
        let due_at = task.due_at.as_micros();
        task.host.clone().map(|host| AffinityRow {
            task_id,
            host,
            due_at,
        })
    };

    let rows: Vec<AffinityRow> = kept.filter_map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }

    let document = serde_json::to_string(&rows)?;
    session
        .execute(Statement::InsertHostAffinity, &[(&document).into()])
        .await?;

    Ok(())
}

/// Claims tasks that are reserved for the node's host.
#[derive(Debug)]
pub(crate) struct ClaimHostAffinity(pub(crate) ClaimRequest);

#[async_trait]
impl Operation for ClaimHostAffinity {
    type Output = Vec<TaskRecord>;

    fn check(&self) -> Result<(), Invalid> {
        self.0.check()
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<TaskRecord>, SqlError> {
        let ClaimRequest {
            node_id,
            host,
            queues,
            task_types,
            limit,
        } = &self.0;

        check_node(session, *node_id).await?;
        let queues = serde_json::to_string(queues)?;
        let types = serde_json::to_string(task_types)?;
        let params = [
            host.into(),
            (&queues).into(),
            (&types).into(),
            (*limit).into(),
        ];

        let rows = session.fetch(Statement::FindHostAffinity, &params).await?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }

        let found = rows
            .iter()
            .map(|row| row.must_id(0).map(TaskId))
            .collect::<Result<Vec<_>, _>>()?;
        let mut effects = TransactionEffects::default();

        // Locked, so that no other node claims or ends them before this claim.
        effects.lock(session, found.iter().copied()).await?;
        let now = session.now().await?;
        let mut ids = Vec::with_capacity(found.len());

        for id in found {
            // A task that was claimed or has ended since is skipped.
            let Some(transition) = effects
                .get(id)
                .and_then(|task| rescue::release(task, now).ok())
            else {
                continue;
            };

            effects.record(session, transition);
            ids.push(id);
        }

        effects.save(session, now).await?;

        // The tasks are claimable now: their reservations go.
        let list = hex_list(ids.iter().copied());
        session
            .execute(Statement::DeleteHostAffinity, &[(&list).into()])
            .await?;

        let host = host.clone();
        let task_types = task_types.clone();
        let named = ClaimNamed {
            node_id: *node_id,
            host,
            task_types,
            ids,
        };

        named.run(session).await
    }
}
