//! Kept tasks: for a while after a rescue, only nodes of the host that a task ran on may claim it (R23).

use async_trait::async_trait;
use longhaul_domain::{
    Task, TaskId,
    contract::store::{ClaimNamed, ClaimRequest},
    lifecycle::rescue,
};
use serde::Serialize;

use super::claim::{ClaimTheNamed, check_node};
use crate::{
    catalog::Statement,
    failure::Failure,
    ledger::Ledger,
    record::{hex, hex_list},
    row::Columns as _,
    session::{Operation, Session},
};

/// A task and the host that it is kept for, as the statement takes it.
#[derive(Serialize)]
struct KeptRow {
    task_id: String,
    host: String,
    /// When everybody may claim it. A task that is due at another time has been moved since, and is not kept any more.
    due_at: i64,
}

/// Notes that rescued tasks are kept for the host that they ran on.
pub(crate) async fn keep(session: &mut dyn Session, rescued: &[Task]) -> Result<(), Failure> {
    let kept = rescued.iter().filter(|task| task.status.is_claimable());
    let row = |task: &Task| {
        let (task_id, due_at) = (hex(task.id.0), task.due_at.as_micros());
        task.host.clone().map(|host| KeptRow {
            task_id,
            host,
            due_at,
        })
    };
    let rows: Vec<KeptRow> = kept.filter_map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let document = serde_json::to_string(&rows)?;
    session
        .execute(Statement::KeepTasks, &[(&document).into()])
        .await?;
    Ok(())
}

/// Takes tasks that are kept for the node's host.
#[derive(Debug)]
pub(crate) struct ClaimKept {
    pub(crate) request: ClaimRequest,
}

#[async_trait]
impl Operation for ClaimKept {
    type Output = Vec<Task>;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<Task>, Failure> {
        let ClaimRequest {
            node_id,
            host,
            queues,
            task_types,
            limit,
        } = &self.request;
        check_node(session, *node_id).await?;
        let (queues, types) = (
            serde_json::to_string(queues)?,
            serde_json::to_string(task_types)?,
        );
        let params = [
            host.into(),
            (&queues).into(),
            (&types).into(),
            (*limit).into(),
        ];
        let rows = session.fetch(Statement::FindKept, &params).await?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let found = rows
            .iter()
            .map(|row| row.must_id(0).map(TaskId))
            .collect::<Result<Vec<_>, _>>()?;
        let mut ledger = Ledger::default();
        ledger.lock(session, found.iter().copied()).await?;
        let now = session.now().await?;
        let mut ids = Vec::with_capacity(found.len());
        for id in found {
            // Whoever claimed or ended it in between has won.
            let Some(transition) = ledger
                .get(id)
                .and_then(|task| rescue::release(task, now).ok())
            else {
                continue;
            };
            ledger.record(session, transition);
            ids.push(id);
        }
        ledger.save(session, now).await?;
        let list = hex_list(ids.iter().copied());
        session
            .execute(Statement::ReleaseKept, &[(&list).into()])
            .await?;
        let (host, task_types) = (host.clone(), task_types.clone());
        let named = ClaimNamed {
            node_id: *node_id,
            host,
            task_types,
            ids,
        };
        ClaimTheNamed { request: named }.run(session).await
    }
}
