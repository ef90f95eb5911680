//! Claims. Rows are read and locked once, the lifecycle decides, and a few statements take them.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Instant;

use longhaul_domain::{
    LeaseToken, TaskId, TaskRecord, Timestamp,
    contract::store::{ClaimNamed, ClaimRequest},
    lifecycle,
    statistics::CountSheet,
};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::session::MySqlSession;
use crate::{
    bounds::LaneBound,
    catalog::{MYSQL_DIALECT, Sql},
    chunks::Chunked,
    effects,
    operations::claim::{Claimant, Lane, by_priority, in_order, shares},
    random,
    record::{self, hex_list},
    row::{Columns as _, SqlRow},
    session::Session as _,
    sql_error::SqlError,
    task_columns::TASK_COLUMNS,
};

macro_rules! own {
    ($make:expr, $name:literal) => {
        LazyLock::new(|| $make($name, include_str!(concat!("sql/", $name, ".sql"))))
    };
}

static LANES: LazyLock<Sql> = own!(one, "claim_lanes");
static HEADS: LazyLock<Chunked> = own!(chunked, "claim_heads");
static PEEK: LazyLock<Sql> = own!(one, "claim_peek");
static PICK: LazyLock<Sql> = own!(one, "claim_pick");
static NAMED_FIND: LazyLock<Sql> = own!(one, "named_find");
static NAMED_PICK: LazyLock<Chunked> = own!(chunked, "named_pick");
static TAKE: LazyLock<Chunked> = own!(chunked, "claim_take");

/// The most lanes in one statement.
const HEADS_AT_ONCE: usize = 64;

fn one(name: &'static str, file: &str) -> Sql {
    MYSQL_DIALECT.sql(name, file)
}

fn chunked(name: &'static str, file: &str) -> Chunked {
    Chunked::new(&MYSQL_DIALECT, name, file)
}

pub(super) fn statements() -> impl Iterator<Item = &'static Sql> {
    let chunked = [&*HEADS, &*NAMED_PICK, &*TAKE]
        .into_iter()
        .flat_map(Chunked::statements);
    [&*LANES, &*PEEK, &*PICK, &*NAMED_FIND]
        .into_iter()
        .chain(chunked)
}

/// Claims from where earlier claims ended. The index keeps the entries of claimed tasks until the
/// server purges them, and a claim from the front would scan them all.
pub(super) async fn claim_tasks(
    session: &mut MySqlSession<'_>,
    request: &ClaimRequest,
) -> Result<Vec<TaskRecord>, SqlError> {
    let mut bounds = session.shared().claim_bounds.current();
    let mut picked = Vec::new();
    if !bounds.is_empty() {
        picked = pick(session, request, &bounds).await?;
    }

    // A task may be due before the bounds, so an empty result calls for a full scan.
    if picked.is_empty() && (bounds.is_empty() || session.shared().claim_bounds.may_look_again()) {
        bounds.clear();
        let started = Instant::now();
        picked = pick(session, request, &[]).await?;
        session
            .shared()
            .claim_bounds
            .note_full_scan(started.elapsed());
    }

    for Picked { task, lane, .. } in &picked {
        lane.iter().for_each(|lane| {
            session
                .moves
                .claimed(&bounds, *lane, task.due_at.as_micros())
        });
    }

    take(
        session,
        Claimant {
            node: request.node_id,
            host: &request.host,
        },
        &picked,
    )
    .await
}

/// Picks lane by lane, highest priority first; lanes of one priority share by due time.
async fn pick(
    session: &mut MySqlSession<'_>,
    request: &ClaimRequest,
    bounds: &[LaneBound],
) -> Result<Vec<Picked>, SqlError> {
    let mut picked = Vec::new();
    for group in by_priority(open_lanes(session, request, bounds).await?) {
        let wanted = request.limit - picked.len();
        if wanted == 0 {
            break;
        }

        for (lane, share) in shares(session, &PEEK, &group, wanted).await? {
            let params = [
                session.clock().into(),
                lane.id.into(),
                share.into(),
                lane.from.into(),
            ];
            for row in session.fetch_sql(&PICK, &params).await? {
                picked.push(Picked::from_row(&row, Some(lane.id), lane.priority)?);
            }
        }
    }

    Ok(picked)
}

/// The lanes that hold due tasks. A single lane is returned unchecked.
async fn open_lanes(
    session: &mut MySqlSession<'_>,
    request: &ClaimRequest,
    bounds: &[LaneBound],
) -> Result<Vec<Lane>, SqlError> {
    let from: HashMap<i64, i64> = bounds
        .iter()
        .map(|bound| (bound.lane, bound.due_at))
        .collect();
    let queues = serde_json::to_string(&request.queues)?;
    let types = serde_json::to_string(&request.task_types)?;
    let params = [
        session.clock().into(),
        (&queues).into(),
        (&types).into(),
        request.node_id.0.into(),
    ];

    let mut lanes = Vec::new();
    let mut now = 0;
    for row in session.fetch_sql(&LANES, &params).await? {
        let id = row.must_int(0)?;
        lanes.push(Lane {
            id,
            priority: row.must_int(1)?,
            from: from.get(&id).copied().unwrap_or(0),
        });
        now = row.must_int(2)?;
    }
    if lanes.len() < 2 {
        return Ok(lanes);
    }

    let mut open = Vec::new();
    // Each column opens the table again, and the server limits open tables.
    for (sql, chunk) in lanes
        .chunks(HEADS_AT_ONCE)
        .flat_map(|lanes| HEADS.filled(lanes))
    {
        let query = sqlx::query(super::text(sql));
        let query = chunk.iter().fold(query, |query, lane| {
            query.bind(lane.id).bind(lane.id).bind(lane.from)
        });
        let heads = SqlRow::MySql(query.fetch_one(session.connection()).await?);

        for (place, lane) in chunk.into_iter().enumerate() {
            let is_open = heads.int(place)?.is_some_and(|head| head <= now);
            if is_open && open.last().is_none_or(|last: &Lane| last.id != lane.id) {
                open.push(lane);
            }
        }
    }

    Ok(open)
}

/// Claims those of the named tasks that are claimable.
pub(super) async fn claim_named(
    session: &mut MySqlSession<'_>,
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

    let mut lane_priorities = HashMap::new();
    for row in session.fetch_sql(&NAMED_FIND, &params).await? {
        lane_priorities.insert(TaskId(row.must_id(0)?), row.must_int(1)?);
    }

    // Rows are locked in the order of their ids, which avoids deadlocks.
    let mut found: Vec<TaskId> = lane_priorities.keys().copied().collect();
    found.sort_unstable();

    let mut picked = Vec::new();
    for (sql, ids) in NAMED_PICK.filled(&found) {
        let query = sqlx::query(super::text(sql)).bind(session.clock());
        let query = ids
            .iter()
            .fold(query, |query, id| query.bind(id.0.as_bytes().to_vec()))
            .bind(session.clock());

        for row in query.fetch_all(session.connection()).await? {
            let row = SqlRow::MySql(row);
            let lane_priority = lane_priorities
                .get(&TaskId(row.must_id(0)?))
                .copied()
                .unwrap_or(0);
            picked.push(Picked::from_row(&row, None, lane_priority)?);
        }
    }

    take(
        session,
        Claimant {
            node: request.node_id,
            host: &request.host,
        },
        &picked,
    )
    .await
}

struct Picked {
    task: TaskRecord,
    /// The server's time of the pick.
    at: i64,
    /// Its lane; `None` if it was picked by name.
    lane: Option<i64>,
    /// The priority of its lane.
    lane_priority: i64,
}

impl Picked {
    fn from_row(row: &SqlRow, lane: Option<i64>, lane_priority: i64) -> Result<Self, SqlError> {
        Ok(Self {
            task: record::task(row)?,
            at: row.must_int(TASK_COLUMNS.len())?,
            lane,
            lane_priority,
        })
    }
}

/// Claims the picked and locked tasks.
async fn take(
    session: &mut MySqlSession<'_>,
    claimant: Claimant<'_>,
    picked: &[Picked],
) -> Result<Vec<TaskRecord>, SqlError> {
    let Some(now) = picked.iter().map(|picked| picked.at).max() else {
        return Ok(Vec::new());
    };

    // One random value per claim; each task's token is a digest of it and the id.
    let drawn = random::token();
    let mut ids: Vec<TaskId> = picked.iter().map(|picked| picked.task.id).collect();
    ids.sort_unstable();

    let mut taken = 0;
    for (sql, ids) in TAKE.filled(&ids) {
        let query = sqlx::query(super::text(sql)).bind(drawn.as_bytes().to_vec());
        let query = query
            .bind(claimant.node.0.as_bytes().to_vec())
            .bind(claimant.host);
        let query = query.bind(now).bind(now).bind(now);
        let query = ids
            .iter()
            .fold(query, |query, id| query.bind(id.0.as_bytes().to_vec()));
        taken += query.execute(session.connection()).await?.rows_affected();
    }

    if taken != picked.len() as u64 {
        return Err(SqlError::LostRace(format!(
            "{taken} of {} picked tasks were taken",
            picked.len()
        )));
    }

    let mut claimed = Vec::with_capacity(picked.len());
    let mut sheet = CountSheet::default();
    for Picked {
        task: before,
        lane_priority,
        ..
    } in picked
    {
        let token = token(drawn, before.id);
        let at = Timestamp::from_micros(now);
        let after =
            lifecycle::claim::decide(before, claimant.node, claimant.host, token, at)?.after;
        sheet.record_move(before, &after);
        claimed.push((*lane_priority, after));
    }

    effects::insert_task_counts(session, &sheet.into_task_counts()).await?;
    Ok(in_order(claimed))
}

/// The token of one task of a claim: the first half of a digest. `claim_take` computes the same.
fn token(drawn: Uuid, id: TaskId) -> LeaseToken {
    let digest: [u8; 32] = Sha256::new_with_prefix(drawn.as_bytes())
        .chain_update(id.0.as_bytes())
        .finalize()
        .into();
    let (first, _) = digest.split_at(16);

    LeaseToken(Uuid::from_u128(
        first
            .iter()
            .fold(0, |number, byte| (number << 8) | u128::from(*byte)),
    ))
}
