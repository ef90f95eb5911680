//! Claims in the one writer's transaction: rows are read once, the lifecycle decides, and each is written by its number.

use std::cmp::Reverse;
use std::sync::LazyLock;

use longhaul_domain::{LeaseToken, Task, Timestamp, contract::store::ClaimRequest, lifecycle, statistics::TallySheet};
use uuid::Uuid;

use super::session::{SqliteSession, bind, execute};
use crate::{
    catalog::{SQLITE_DIALECT, Sql},
    failure::Failure,
    ledger,
    operations::claim::{LaneLook, open_lanes, shares},
    random,
    record::{self, TASK_COLUMNS},
    row::Columns as _,
    session::Session as _,
};

macro_rules! own {
    ($name:literal) => {
        LazyLock::new(|| SQLITE_DIALECT.sql($name, include_str!(concat!("sql/", $name, ".sql"))))
    };
}

static LANES: LazyLock<Sql> = own!("claim_lanes");
static PEEK: LazyLock<Sql> = own!("claim_peek");
static PICK: LazyLock<Sql> = own!("claim_pick");
static TAKE: LazyLock<Sql> = own!("claim_take");

pub(super) fn statements() -> [&'static Sql; 4] {
    [&*LANES, &*PEEK, &*PICK, &*TAKE]
}

/// Claims lane by lane, highest priority first; lanes of one priority share by due time.
pub(super) async fn claim_tasks(session: &mut SqliteSession<'_>, request: &ClaimRequest) -> Result<Vec<Task>, Failure> {
    let look = LaneLook { lanes: &LANES, peek: &PEEK };
    let (mut claimed, mut sheet) = (Vec::new(), TallySheet::default());
    for group in open_lanes(session, &look, request).await? {
        let wanted = request.limit - claimed.len();
        if wanted == 0 {
            break;
        }
        for (lane, share) in shares(session, &look, &group, wanted).await? {
            claimed.extend(take(session, request, lane, share, &mut sheet)?);
        }
    }
    ledger::insert_tallies(session, &sheet.into_tallies()).await?;
    claimed.sort_by_key(|task: &Task| (Reverse(task.priority), task.due_at, task.id));
    Ok(claimed)
}

fn take(
    session: &SqliteSession<'_>,
    request: &ClaimRequest,
    lane: i64,
    share: usize,
    sheet: &mut TallySheet,
) -> Result<Vec<Task>, Failure> {
    let picked = pick(session, lane, share)?;
    let mut update = session.prepared(&TAKE)?;
    let now = Timestamp::from_micros(session.clock());
    let mut taken = Vec::with_capacity(picked.len());
    for (before, number) in picked {
        let token = Uuid::from_u64_pair(random::next_u64(), random::next_u64());
        let claim = lifecycle::claim::decide(&before, request.node_id, &request.host, LeaseToken(token), now)?;
        let (node, host) = (request.node_id.0.into(), (&request.host).into());
        if execute(&mut update, &[now.as_micros().into(), number.into(), token.into(), node, host])? != 1 {
            return Err(Failure::internal("a task that was read in this transaction is gone"));
        }
        sheet.record_move(&before, &claim.after);
        taken.push(claim.after);
    }
    Ok(taken)
}

/// The first tasks of a lane, each with the number of its row.
fn pick(session: &SqliteSession<'_>, lane: i64, share: usize) -> Result<Vec<(Task, i64)>, Failure> {
    let mut pick = session.prepared(&PICK)?;
    bind(&mut pick, &[session.clock().into(), lane.into(), share.into()])?;
    let (mut rows, mut picked) = (pick.raw_query(), Vec::new());
    while let Some(row) = rows.next()? {
        picked.push((record::task(row)?, row.must_int(TASK_COLUMNS)?));
    }
    Ok(picked)
}
