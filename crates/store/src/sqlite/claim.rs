//! Claims in the writer's transaction. Each row is read once, decided by the lifecycle and written
//! by its row number.

use std::sync::LazyLock;

use longhaul_domain::{
    LeaseToken, TaskRecord, Timestamp,
    contract::store::{ClaimNamed, ClaimRequest},
    lifecycle,
    statistics::CountSheet,
};

use super::session::{SqliteSession, bind, execute};
use crate::{
    catalog::{SQLITE_DIALECT, Sql},
    effects,
    operations::claim::{Claimant, in_order, open_lanes, shares},
    random,
    record::{self, hex_list},
    row::{Columns as _, Param},
    session::Session as _,
    sql_error::SqlError,
    task_columns::TASK_COLUMNS,
};

macro_rules! own {
    ($name:literal) => {
        LazyLock::new(|| SQLITE_DIALECT.sql($name, include_str!(concat!("sql/", $name, ".sql"))))
    };
}

static LANES: LazyLock<Sql> = own!("claim_lanes");
static PEEK: LazyLock<Sql> = own!("claim_peek");
static PICK: LazyLock<Sql> = own!("claim_pick");
static NAMED: LazyLock<Sql> = own!("named_pick");
static TAKE: LazyLock<Sql> = own!("claim_take");

pub(super) fn statements() -> [&'static Sql; 5] {
    [&*LANES, &*PEEK, &*PICK, &*NAMED, &*TAKE]
}

/// Claims lane by lane, highest priority first; lanes of one priority share by due time.
pub(super) async fn claim_tasks(
    session: &mut SqliteSession<'_>,
    request: &ClaimRequest,
) -> Result<Vec<TaskRecord>, SqlError> {
    let claimant = Claimant {
        node: request.node_id,
        host: &request.host,
    };
    let mut claimed = Vec::new();
    let mut sheet = CountSheet::default();

    for group in open_lanes(session, &LANES, request).await? {
        let wanted = request.limit - claimed.len();
        if wanted == 0 {
            break;
        }

        for (lane, share) in shares(session, &PEEK, &group, wanted).await? {
            let params = [
                session.clock().into(),
                lane.id.into(),
                share.into(),
                lane.priority.into(),
            ];

            claimed.extend(take(
                session,
                claimant,
                pick(session, &PICK, &params)?,
                &mut sheet,
            )?);
        }
    }

    effects::insert_task_counts(session, &sheet.into_task_counts()).await?;
    Ok(in_order(claimed))
}

/// Claims those of the named tasks that are claimable.
pub(super) async fn claim_named(
    session: &mut SqliteSession<'_>,
    request: &ClaimNamed,
) -> Result<Vec<TaskRecord>, SqlError> {
    let list = hex_list(request.ids.iter().copied());
    let types = serde_json::to_string(&request.task_types)?;
    let params = [
        session.clock().into(),
        (&list).into(),
        (&types).into(),
        request.node_id.0.into(),
    ];

    let claimant = Claimant {
        node: request.node_id,
        host: &request.host,
    };
    let mut sheet = CountSheet::default();
    let claimed = take(
        session,
        claimant,
        pick(session, &NAMED, &params)?,
        &mut sheet,
    )?;

    effects::insert_task_counts(session, &sheet.into_task_counts()).await?;
    Ok(in_order(claimed))
}

struct Picked {
    task: TaskRecord,
    /// Its row number.
    number: i64,
    /// The priority of its lane.
    lane_priority: i64,
}

fn take(
    session: &SqliteSession<'_>,
    claimant: Claimant<'_>,
    picked: Vec<Picked>,
    sheet: &mut CountSheet,
) -> Result<Vec<(i64, TaskRecord)>, SqlError> {
    let mut update = session.prepared(&TAKE)?;
    let now = Timestamp::from_micros(session.clock());
    let mut taken = Vec::with_capacity(picked.len());

    for Picked {
        task: before,
        number,
        lane_priority,
    } in picked
    {
        let token = random::token();
        let claim = lifecycle::claim::decide(
            &before,
            claimant.node,
            claimant.host,
            LeaseToken(token),
            now,
        )?;

        let after = &claim.after;
        let attempt = i64::from(after.attempt);
        let version = i64::try_from(after.version).unwrap_or(i64::MAX);
        let params = [
            number.into(),
            token.into(),
            claimant.node.0.into(),
            claimant.host.into(),
            attempt.into(),
            version.into(),
            Param::Int(after.started_at.map(Timestamp::as_micros)),
            after.updated_at.as_micros().into(),
        ];

        if execute(&mut update, &params)? != 1 {
            return Err(SqlError::internal(
                "a task that was read in this transaction is gone",
            ));
        }

        sheet.record_move(&before, &claim.after);
        taken.push((lane_priority, claim.after));
    }

    Ok(taken)
}

/// The tasks that a statement finds.
fn pick(
    session: &SqliteSession<'_>,
    sql: &'static Sql,
    params: &[Param<'_>],
) -> Result<Vec<Picked>, SqlError> {
    let mut pick = session.prepared(sql)?;
    bind(&mut pick, params)?;
    let mut rows = pick.raw_query();
    let mut picked = Vec::new();

    while let Some(row) = rows.next()? {
        let number = row.must_int(TASK_COLUMNS.len())?;
        let lane_priority = row.must_int(TASK_COLUMNS.len() + 1)?;
        picked.push(Picked {
            task: record::task(row)?,
            number,
            lane_priority,
        });
    }

    Ok(picked)
}
