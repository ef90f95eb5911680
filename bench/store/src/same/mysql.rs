//! The statements of MySQL and MariaDB: several in one transaction for each step.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use longhaul_store::{DatabaseKind, connect_mysql};
use sqlx::{Connection as _, MySqlConnection, Row as _, mysql::MySqlRow};
use uuid::Uuid;

use super::{
    ATTEMPT, BATCH, Claimed, DUE_AT, HOST, ID, MAX_ATTEMPTS, OWNER, PRIORITY, QUEUE, QUEUES,
    RESULT, Row, Sizes, TASK_TYPE, TASK_TYPES, cut, fill, node_id, sizes, statement, task_counts,
};

const KIND: DatabaseKind = DatabaseKind::MySql;
/// The offset of the server's clock.
const SHIFT: i64 = 0;
/// The parameters of one row of `insert_tasks` and of `append_task_counts`.
const ROW_PARAMETERS: usize = 23;
const LINE_PARAMETERS: usize = 7;
/// The index of the time in a row of `complete_find`, and behind the task's columns in a row of
/// `claim_pick`.
const NOW_OF_FOUND: usize = 7;
const NOW_OF_PICKED: usize = 45;

/// One connection.
#[derive(Debug)]
pub(super) struct Loop {
    connection: MySqlConnection,
    lane: i64,
    node: Uuid,
    texts: Texts,
    /// The progress of all loops.
    bound: Arc<AtomicI64>,
}

/// The statements. Parameters have no numbers here: each is bound at its `?`.
#[derive(Debug, Clone)]
struct Texts {
    insert: Sizes,
    task_count: Sizes,
    lanes: &'static str,
    pick: &'static str,
    take: Sizes,
    find: Sizes,
    complete: Sizes,
}

impl Loop {
    pub(super) async fn open(
        url: &str,
        node: Uuid,
        connections: usize,
    ) -> anyhow::Result<Vec<Self>> {
        let mut first = connect_mysql(url).await?;
        let lane = sqlx::query(statement(KIND, "insert_lane")?)
            .bind(QUEUE)
            .bind(TASK_TYPE)
            .bind(PRIORITY);

        lane.execute(&mut first).await?;
        let lane = sqlx::query(statement(KIND, "find_lane")?)
            .bind(QUEUE)
            .bind(TASK_TYPE)
            .bind(PRIORITY);
        let lane = lane.fetch_one(&mut first).await?.try_get_unchecked(0)?;
        let alive = sqlx::query(statement(KIND, "insert_node")?)
            .bind(node.as_bytes().to_vec())
            .bind("bench");

        alive
            .bind(HOST)
            .bind(SHIFT)
            .bind(SHIFT)
            .bind(None::<String>)
            .execute(&mut first)
            .await?;

        let texts = Texts {
            insert: sizes(KIND, "insert_tasks", 0, ROW_PARAMETERS),
            task_count: sizes(KIND, "append_task_counts", 0, LINE_PARAMETERS),
            lanes: statement(KIND, "claim_lanes")?,
            pick: statement(KIND, "claim_pick")?,
            take: sizes(KIND, "claim_take", 6, 1),
            find: sizes(KIND, "complete_find", 1, 1),
            complete: sizes(KIND, "complete_tasks", 2, 3),
        };

        let bound = Arc::new(AtomicI64::new(0));
        let mut loops = Vec::with_capacity(connections);
        for _ in 0..connections {
            let connection = connect_mysql(url).await?;
            let bound = Arc::clone(&bound);
            loops.push(Self {
                connection,
                lane,
                node,
                texts: texts.clone(),
                bound,
            });
        }

        Ok(loops)
    }

    pub(super) async fn insert(&mut self, rows: &[Row]) -> anyhow::Result<()> {
        let mut transaction = self.connection.begin().await?;
        for (text, chunk) in cut(&self.texts.insert, rows) {
            let query = chunk
                .iter()
                .fold(sqlx::query(text), |query, row| bind(query, row, self.lane));
            query.execute(&mut *transaction).await?;
        }
        task_count(
            &mut transaction,
            &self.texts,
            &task_counts::submitted(rows.len()),
        )
        .await?;
        Ok(transaction.commit().await?)
    }

    pub(super) async fn claim(&mut self) -> anyhow::Result<Vec<Claimed>> {
        let mut transaction = self.connection.begin().await?;
        let bound = self.bound.load(Ordering::Relaxed);
        let mut picked = pick_within(&mut transaction, &self.texts, self.node, bound).await?;
        if picked.is_empty() && bound != 0 {
            picked = pick_within(&mut transaction, &self.texts, self.node, 0).await?;
        }

        for row in &picked {
            self.bound
                .fetch_max(row.try_get_unchecked(DUE_AT)?, Ordering::Relaxed);
        }

        let claimed = take_within(&mut transaction, &self.texts, self.node, &picked).await?;
        transaction.commit().await?;
        Ok(claimed)
    }

    pub(super) async fn finish(&mut self, claimed: &[Claimed]) -> anyhow::Result<usize> {
        let mut transaction = self.connection.begin().await?;
        let mut now = 0_i64;
        for (text, chunk) in fill(&self.texts.find, claimed) {
            let find = bind_ids(
                sqlx::query(text).bind(SHIFT),
                chunk.iter().map(|claimed| claimed.id),
            );
            for row in find.fetch_all(&mut *transaction).await? {
                now = row.try_get_unchecked(NOW_OF_FOUND)?;
            }
        }
        let mut ended = 0;
        for (text, chunk) in fill(&self.texts.complete, claimed) {
            let ids = || chunk.iter().map(|claimed| claimed.id);
            let complete = chunk
                .iter()
                .fold(bind_ids(sqlx::query(text), ids()), |query, _| {
                    query.bind(RESULT)
                });
            let complete = bind_ids(complete.bind(now).bind(now), ids());
            ended += complete.execute(&mut *transaction).await?.rows_affected();
        }
        task_count(
            &mut transaction,
            &self.texts,
            &task_counts::completed(claimed.len()),
        )
        .await?;
        transaction.commit().await?;
        Ok(usize::try_from(ended)?)
    }
}

async fn pick_within(
    connection: &mut MySqlConnection,
    texts: &Texts,
    node: Uuid,
    bound: i64,
) -> anyhow::Result<Vec<MySqlRow>> {
    let lanes = sqlx::query(texts.lanes)
        .bind(SHIFT)
        .bind(QUEUES)
        .bind(TASK_TYPES)
        .bind(node.as_bytes().to_vec());
    let lanes = lanes.fetch_all(&mut *connection).await?;
    let Some(lane) = lanes.first() else {
        return Ok(Vec::new());
    };

    let lane: i64 = lane.try_get_unchecked(0)?;
    let pick = sqlx::query(texts.pick)
        .bind(SHIFT)
        .bind(lane)
        .bind(lane)
        .bind(bound)
        .bind(SHIFT)
        .bind(BATCH as i64);
    Ok(pick.fetch_all(&mut *connection).await?)
}

async fn take_within(
    connection: &mut MySqlConnection,
    texts: &Texts,
    node: Uuid,
    picked: &[MySqlRow],
) -> anyhow::Result<Vec<Claimed>> {
    if picked.is_empty() {
        return Ok(Vec::new());
    }

    let now: i64 = picked[0].try_get_unchecked(NOW_OF_PICKED)?;
    let token: Uuid = node_id();
    let ids = picked
        .iter()
        .map(|row| Ok(Uuid::from_slice(row.try_get_unchecked::<&[u8], _>(ID)?)?));
    let ids = ids.collect::<anyhow::Result<Vec<_>>>()?;

    for (text, chunk) in fill(&texts.take, &ids) {
        let take = sqlx::query(text)
            .bind(token.as_bytes().to_vec())
            .bind(node.as_bytes().to_vec())
            .bind(HOST);
        bind_ids(
            take.bind(now).bind(now).bind(now),
            chunk.into_iter().copied(),
        )
        .execute(&mut *connection)
        .await?;
    }

    let claimed = picked
        .iter()
        .map(claimed)
        .collect::<anyhow::Result<Vec<_>>>()?;
    task_count(connection, texts, &task_counts::claimed(claimed.len())).await?;

    Ok(claimed)
}

/// What a finish needs. The token is not checked, because this loop is alone.
fn claimed(row: &MySqlRow) -> anyhow::Result<Claimed> {
    let id = Uuid::from_slice(row.try_get_unchecked::<&[u8], _>(ID)?)?;
    Ok(Claimed {
        id,
        attempt: row.try_get_unchecked::<i64, _>(ATTEMPT)? + 1,
        token: Uuid::nil(),
    })
}

fn bind_ids(query: Query<'_>, ids: impl Iterator<Item = Uuid>) -> Query<'_> {
    ids.fold(query, |query, id| query.bind(id.as_bytes().to_vec()))
}

async fn task_count(
    connection: &mut MySqlConnection,
    texts: &Texts,
    lines: &[task_counts::Line],
) -> anyhow::Result<()> {
    for (text, chunk) in cut(&texts.task_count, lines) {
        let query = chunk.iter().fold(sqlx::query(text), |query, line| {
            let query = query
                .bind(line.span_start)
                .bind(QUEUE)
                .bind(TASK_TYPE)
                .bind(line.measure);
            query.bind(line.label).bind(line.bucket).bind(line.n)
        });

        query.execute(&mut *connection).await?;
    }

    Ok(())
}

type Query<'q> = sqlx::query::Query<'q, sqlx::MySql, sqlx::mysql::MySqlArguments>;

fn bind<'q>(query: Query<'q>, row: &Row, lane: i64) -> Query<'q> {
    query
        .bind(row.id.as_bytes().to_vec())
        .bind(None::<String>)
        .bind(lane)
        .bind(SHIFT)
        .bind(SHIFT)
        .bind(None::<i64>)
        .bind(SHIFT)
        .bind(None::<i64>)
        .bind(row.parameters.clone())
        .bind(None::<Vec<u8>>)
        .bind(OWNER)
        .bind(None::<String>)
        .bind(TASK_TYPE)
        .bind(QUEUE)
        .bind(PRIORITY)
        .bind(MAX_ATTEMPTS)
        .bind(None::<i64>)
        .bind(None::<i64>)
        .bind(0_i64)
        .bind(None::<String>)
        .bind(None::<String>)
        .bind(None::<String>)
        .bind(None::<String>)
}
