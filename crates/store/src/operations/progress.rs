//! Progress and checkpoints of running attempts, and lease checks.

use std::collections::HashMap;

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, Json, LeaseToken, Status, TaskId, bounds, contract::store::Verdict, task::Lease,
};
use serde::Serialize;

use crate::{
    catalog::Statement,
    record::{self, hex, hex_list},
    row::Columns as _,
    session::{Operation, Session},
    split_by_bytes::split_by_bytes,
    sql_error::SqlError,
};

/// What a running attempt saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Saved {
    Progress,
    Checkpoint,
}

/// Saves progress or checkpoints of many attempts. Answers with one verdict for each.
#[derive(Debug)]
pub(crate) struct SaveState {
    pub(crate) saved: Saved,
    pub(crate) reports: Vec<(Lease, Json)>,
}

#[derive(Serialize)]
struct StateRow<'a> {
    id: String,
    attempt: u32,
    token: String,
    body: &'a str,
}

#[async_trait]
impl Operation for SaveState {
    type Output = Vec<Verdict>;

    fn check(&self) -> Result<(), Invalid> {
        bounds::check_batch("progress", self.reports.len(), bounds::CLAIM_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<Verdict>, SqlError> {
        let leases: Vec<Lease> = self.reports.iter().map(|(lease, _)| *lease).collect();
        // Locked until commit: no attempt ends before its state is saved.
        let held = read_holders(session, Statement::LockLeases, &leases).await?;
        let verdicts: Vec<Verdict> = leases.iter().map(|lease| verdict(&held, lease)).collect();

        // The last write of an attempt in one batch is kept.
        let mut rows: HashMap<TaskId, StateRow<'_>> = HashMap::new();
        for ((lease, body), verdict) in self.reports.iter().zip(&verdicts) {
            if *verdict == Verdict::Applied(Status::Running) {
                let id = hex(lease.task_id.0);
                let token = hex(lease.token.0);
                rows.insert(
                    lease.task_id,
                    StateRow {
                        id,
                        attempt: lease.attempt,
                        token,
                        body: body.as_str(),
                    },
                );
            }
        }

        if !rows.is_empty() {
            let statement = match self.saved {
                Saved::Progress => Statement::SaveProgress,
                Saved::Checkpoint => Statement::SaveCheckpoint,
            };
            let rows: Vec<StateRow<'_>> = rows.into_values().collect();
            for chunk in split_by_bytes(&rows, |row| 200 + row.body.len()) {
                let document = serde_json::to_string(chunk)?;
                let clock = session.clock();
                session
                    .execute(statement, &[clock.into(), (&document).into()])
                    .await?;
            }
        }

        Ok(verdicts)
    }
}

/// The holder of a task: its status, attempt and token.
type Holders = HashMap<TaskId, (Status, i64, Option<LeaseToken>)>;

/// Reads the current holders of the leased tasks.
pub(crate) async fn read_holders(
    session: &mut dyn Session,
    statement: Statement,
    leases: &[Lease],
) -> Result<Holders, SqlError> {
    if leases.is_empty() {
        return Ok(Holders::new());
    }

    let mut ids: Vec<TaskId> = leases.iter().map(|lease| lease.task_id).collect();
    ids.sort_unstable();
    ids.dedup();
    let list = hex_list(ids);
    let mut held = Holders::new();

    for row in session.fetch(statement, &[(&list).into()]).await? {
        let holder = (
            record::status(&row, 1)?,
            row.must_int(2)?,
            row.id(3)?.map(LeaseToken),
        );
        held.insert(TaskId(row.must_id(0)?), holder);
    }

    Ok(held)
}

/// Whether the lease belongs to the running attempt.
pub(crate) fn verdict(held: &Holders, lease: &Lease) -> Verdict {
    match held.get(&lease.task_id) {
        None => Verdict::Missing,
        Some((Status::Running, attempt, Some(token)))
            if *attempt == i64::from(lease.attempt) && *token == lease.token =>
        {
            Verdict::Applied(Status::Running)
        }
        Some((status, _, _)) => Verdict::Stale(*status),
    }
}
