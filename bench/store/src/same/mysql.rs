//! The statements of MySQL and MariaDB: a transaction of several for each step.

use longhaul_store::{DatabaseKind, connect_mysql};
use sqlx::{Connection as _, MySqlConnection, Row as _, mysql::MySqlRow};
use uuid::Uuid;

use super::{
    ATTEMPT, BATCH, Claimed, HOST, ID, LEASE_TOKEN, MAX_ATTEMPTS, OWNER, PRIORITY, QUEUE, QUEUES, Row, Sizes,
    TASK_TYPE, TASK_TYPES, completion_document, cut, sizes, statement, tallies,
};

const KIND: DatabaseKind = DatabaseKind::MySql;
/// What is added to the server's clock.
const SHIFT: i64 = 0;
/// Parameters of one row of `insert_tasks`, and of one line of `append_tallies`.
const ROW_PARAMETERS: usize = 23;
const LINE_PARAMETERS: usize = 7;

/// One connection.
#[derive(Debug)]
pub(super) struct Loop {
    connection: MySqlConnection,
    lane: i64,
    node: Uuid,
    texts: Texts,
}

/// What is sent. Parameters have no numbers here: each is bound where its `?` stands.
#[derive(Debug, Clone)]
struct Texts {
    insert: Sizes,
    tally: Sizes,
    lanes: &'static str,
    pick: &'static str,
    take: &'static str,
    read: &'static str,
    find: &'static str,
    complete: &'static str,
}

impl Loop {
    pub(super) async fn open(url: &str, node: Uuid, connections: usize) -> anyhow::Result<Vec<Self>> {
        let mut first = connect_mysql(url).await?;
        let lane = sqlx::query(statement(KIND, "insert_lane")?).bind(QUEUE).bind(TASK_TYPE).bind(PRIORITY);
        lane.execute(&mut first).await?;
        let lane = sqlx::query(statement(KIND, "find_lane")?).bind(QUEUE).bind(TASK_TYPE).bind(PRIORITY);
        let lane = lane.fetch_one(&mut first).await?.try_get_unchecked(0)?;
        let alive = sqlx::query(statement(KIND, "insert_node")?).bind(node.as_bytes().to_vec()).bind("bench");
        alive.bind(HOST).bind(SHIFT).bind(SHIFT).execute(&mut first).await?;
        let texts = Texts {
            insert: sizes(KIND, "insert_tasks", ROW_PARAMETERS),
            tally: sizes(KIND, "append_tallies", LINE_PARAMETERS),
            lanes: statement(KIND, "claim_lanes")?,
            pick: statement(KIND, "claim_pick")?,
            take: statement(KIND, "claim_take")?,
            read: statement(KIND, "read_tasks")?,
            find: statement(KIND, "complete_find")?,
            complete: statement(KIND, "complete_tasks")?,
        };
        let mut loops = Vec::with_capacity(connections);
        for _ in 0..connections {
            loops.push(Self { connection: connect_mysql(url).await?, lane, node, texts: texts.clone() });
        }
        Ok(loops)
    }

    pub(super) async fn insert(&mut self, rows: &[Row]) -> anyhow::Result<()> {
        let mut transaction = self.connection.begin().await?;
        for (text, chunk) in cut(&self.texts.insert, rows) {
            let query = chunk.iter().fold(sqlx::query(text), |query, row| bind(query, row, self.lane));
            query.execute(&mut *transaction).await?;
        }
        tally(&mut transaction, &self.texts, &tallies::submitted(rows.len())).await?;
        Ok(transaction.commit().await?)
    }

    pub(super) async fn claim(&mut self) -> anyhow::Result<Vec<Claimed>> {
        let mut transaction = self.connection.begin().await?;
        let claimed = claim_within(&mut transaction, &self.texts, self.node).await?;
        transaction.commit().await?;
        Ok(claimed)
    }

    pub(super) async fn finish(&mut self, claimed: &[Claimed]) -> anyhow::Result<usize> {
        let document = completion_document(claimed);
        let mut transaction = self.connection.begin().await?;
        let find = sqlx::query(self.texts.find).bind(SHIFT).bind(document.clone());
        find.fetch_all(&mut *transaction).await?;
        let complete = sqlx::query(self.texts.complete).bind(document).bind(SHIFT).bind(SHIFT);
        let ended = complete.execute(&mut *transaction).await?.rows_affected();
        tally(&mut transaction, &self.texts, &tallies::completed(claimed.len())).await?;
        transaction.commit().await?;
        Ok(usize::try_from(ended)?)
    }
}

async fn claim_within(connection: &mut MySqlConnection, texts: &Texts, node: Uuid) -> anyhow::Result<Vec<Claimed>> {
    let node = node.as_bytes().to_vec();
    let lanes = sqlx::query(texts.lanes).bind(SHIFT).bind(QUEUES).bind(TASK_TYPES).bind(node.clone());
    let lanes = lanes.fetch_all(&mut *connection).await?;
    let due = |row: &&MySqlRow| matches!(row.try_get_unchecked::<Option<i64>, _>(2), Ok(Some(_)));
    let Some(lane) = lanes.iter().find(due) else { return Ok(Vec::new()) };
    let lane: i64 = lane.try_get_unchecked(0)?;
    let picked = sqlx::query(texts.pick).bind(lane).bind(SHIFT).bind(BATCH as i64).fetch_all(&mut *connection).await?;
    if picked.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<&str> = picked.iter().map(|row| row.get(3)).collect();
    let ids = ["[\"", &ids.join("\",\""), "\"]"].concat();
    let take = sqlx::query(texts.take).bind(ids.clone()).bind(node).bind(HOST).bind(SHIFT).bind(SHIFT).bind(SHIFT);
    take.execute(&mut *connection).await?;
    let tasks = sqlx::query(texts.read).bind(ids).fetch_all(&mut *connection).await?;
    let claimed = tasks.iter().map(claimed).collect::<anyhow::Result<Vec<_>>>()?;
    tally(connection, texts, &tallies::claimed(claimed.len())).await?;
    Ok(claimed)
}

fn claimed(row: &MySqlRow) -> anyhow::Result<Claimed> {
    let id = |place: usize| anyhow::Ok(Uuid::from_slice(row.try_get_unchecked::<&[u8], _>(place)?)?);
    Ok(Claimed { id: id(ID)?, attempt: row.try_get_unchecked(ATTEMPT)?, token: id(LEASE_TOKEN)? })
}

async fn tally(connection: &mut MySqlConnection, texts: &Texts, lines: &[tallies::Line]) -> anyhow::Result<()> {
    for (text, chunk) in cut(&texts.tally, lines) {
        let query = chunk.iter().fold(sqlx::query(text), |query, line| {
            let query = query.bind(line.span_start).bind(QUEUE).bind(TASK_TYPE).bind(line.measure);
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
        .bind(None::<Vec<u8>>)
        .bind(OWNER)
        .bind(None::<String>)
        .bind(TASK_TYPE)
        .bind(None::<String>)
        .bind(QUEUE)
        .bind(PRIORITY)
        .bind(lane)
        .bind(SHIFT)
        .bind(SHIFT)
        .bind(None::<i64>)
        .bind(SHIFT)
        .bind(MAX_ATTEMPTS)
        .bind(None::<i64>)
        .bind(None::<i64>)
        .bind(None::<i64>)
        .bind(false)
        .bind(None::<String>)
        .bind(row.parameters.clone())
        .bind(None::<String>)
        .bind(None::<String>)
        .bind(None::<String>)
}
