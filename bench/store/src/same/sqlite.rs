//! The statements of SQLite: one connection, a transaction for each step, rows that come packed in one JSON text.

use anyhow::Context as _;
use longhaul_store::{DatabaseKind, connect_sqlite};
use serde_json::value::RawValue;
use sqlx::{Executor as _, Row as _, SqliteConnection};
use uuid::Uuid;

use super::{
    ATTEMPT, BATCH, Claimed, HOST, ID, LEASE_TOKEN, MAX_ATTEMPTS, OWNER, PRIORITY, QUEUE, QUEUES, RESULT_TEXT, Row,
    Sizes, TASK_TYPE, TASK_TYPES, completion_document, cut, micros_now, sizes, statement, tallies,
};

const KIND: DatabaseKind = DatabaseKind::Sqlite;
/// Parameters of one row of `insert_tasks`.
const ROW_PARAMETERS: usize = 22;

/// The writer, and the texts that it sends.
#[derive(Debug)]
pub(super) struct Loop {
    connection: SqliteConnection,
    lane: i64,
    node: Uuid,
    insert: Sizes,
    tally: &'static str,
    lanes: &'static str,
    pick: &'static str,
    take: &'static str,
    read: &'static str,
    find: &'static str,
    complete: &'static str,
}

impl Loop {
    pub(super) async fn open(url: &str, node: Uuid) -> anyhow::Result<Self> {
        let mut connection = connect_sqlite(url).await?;
        let lane = sqlx::query(statement(KIND, "insert_lane")?).bind(QUEUE).bind(TASK_TYPE).bind(PRIORITY);
        lane.execute(&mut connection).await?;
        let lane = sqlx::query(statement(KIND, "find_lane")?).bind(QUEUE).bind(TASK_TYPE).bind(PRIORITY);
        let lane = lane.fetch_one(&mut connection).await?.try_get(0)?;
        let alive = sqlx::query(statement(KIND, "insert_node")?).bind(micros_now()).bind(node.as_bytes().to_vec());
        alive.bind("bench").bind(HOST).execute(&mut connection).await?;
        Ok(Self {
            connection,
            lane,
            node,
            insert: sizes(KIND, "insert_tasks", ROW_PARAMETERS),
            tally: statement(KIND, "insert_tally_deltas")?,
            lanes: statement(KIND, "claim_lanes")?,
            pick: statement(KIND, "claim_pick")?,
            take: statement(KIND, "claim_take")?,
            read: statement(KIND, "read_tasks")?,
            find: statement(KIND, "complete_find")?,
            complete: statement(KIND, "complete_tasks")?,
        })
    }

    pub(super) async fn insert(&mut self, rows: &[Row]) -> anyhow::Result<()> {
        let now = micros_now();
        self.connection.execute("BEGIN IMMEDIATE").await?;
        for (text, chunk) in cut(&self.insert, rows) {
            let query = chunk.iter().fold(sqlx::query(text), |query, row| bind(query, row, self.lane, now));
            query.execute(&mut self.connection).await?;
        }
        self.tally(&tallies::submitted(rows.len())).await?;
        self.connection.execute("COMMIT").await?;
        Ok(())
    }

    pub(super) async fn claim(&mut self) -> anyhow::Result<Vec<Claimed>> {
        let now = micros_now();
        self.connection.execute("BEGIN IMMEDIATE").await?;
        let claimed = self.claim_within(now).await?;
        self.connection.execute("COMMIT").await?;
        Ok(claimed)
    }

    async fn claim_within(&mut self, now: i64) -> anyhow::Result<Vec<Claimed>> {
        let node = self.node.as_bytes().to_vec();
        let lanes = sqlx::query(self.lanes).bind(now).bind(QUEUES).bind(TASK_TYPES).bind(node.clone());
        let lanes = lanes.fetch_all(&mut self.connection).await?;
        let Some(lane) = lanes.iter().find(|row| row.get::<Option<i64>, _>(2).is_some()) else { return Ok(Vec::new()) };
        let pick = sqlx::query(self.pick).bind(now).bind(lane.get::<i64, _>(0)).bind(BATCH as i64);
        let picked = pick.fetch_all(&mut self.connection).await?;
        let picked = packed(&picked)?;
        if picked.is_empty() {
            return Ok(Vec::new());
        }
        let ids = list(picked.iter().map(|row| row[0].get()));
        let row_numbers = list(picked.iter().map(|row| row[3].get()));
        let take = sqlx::query(self.take).bind(now).bind(row_numbers).bind(node).bind(HOST);
        take.execute(&mut self.connection).await?;
        let tasks = sqlx::query(self.read).bind(ids).fetch_all(&mut self.connection).await?;
        let claimed = packed(&tasks)?.iter().map(|row| claimed(row)).collect::<anyhow::Result<Vec<_>>>()?;
        self.tally(&tallies::claimed(claimed.len())).await?;
        Ok(claimed)
    }

    pub(super) async fn finish(&mut self, claimed: &[Claimed]) -> anyhow::Result<usize> {
        let now = micros_now();
        self.connection.execute("BEGIN IMMEDIATE").await?;
        let find = sqlx::query(self.find).bind(now).bind(completion_document(claimed));
        let found = find.fetch_all(&mut self.connection).await?;
        let found = packed(&found)?;
        let row_numbers = list(found.iter().map(|row| row[7].get()));
        let results = found.iter().map(|row| format!(r#""{}":{{"r":{RESULT_TEXT},"u":null}}"#, row[7].get()));
        let results = ["{", &results.collect::<Vec<_>>().join(","), "}"].concat();
        let complete = sqlx::query(self.complete).bind(now).bind(row_numbers).bind(results);
        let ended = complete.execute(&mut self.connection).await?.rows_affected();
        self.tally(&tallies::completed(claimed.len())).await?;
        self.connection.execute("COMMIT").await?;
        Ok(usize::try_from(ended)?)
    }

    async fn tally(&mut self, lines: &[tallies::Line]) -> anyhow::Result<()> {
        sqlx::query(self.tally).bind(tallies::document(lines)).execute(&mut self.connection).await?;
        Ok(())
    }
}

/// The rows that came as one text, each column as it stands there.
fn packed(rows: &[sqlx::sqlite::SqliteRow]) -> anyhow::Result<Vec<Vec<&RawValue>>> {
    let text: Option<&str> = rows.first().map(|row| row.try_get_unchecked(0)).transpose()?.flatten();
    Ok(text.map(serde_json::from_str).transpose()?.unwrap_or_default())
}

fn claimed(row: &[&RawValue]) -> anyhow::Result<Claimed> {
    let id = |place: usize| Uuid::try_parse(row[place].get().trim_matches('"')).context("an id");
    Ok(Claimed { id: id(ID)?, attempt: row[ATTEMPT].get().parse()?, token: id(LEASE_TOKEN)? })
}

/// A JSON array of what is JSON already.
fn list<'a>(values: impl Iterator<Item = &'a str>) -> String {
    ["[", &values.collect::<Vec<_>>().join(","), "]"].concat()
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

fn bind<'q>(query: Query<'q>, row: &Row, lane: i64, now: i64) -> Query<'q> {
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
        .bind(now)
        .bind(now)
        .bind(now)
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
