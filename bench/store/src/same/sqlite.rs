//! The statements of SQLite: one connection, a transaction for each step, rows found by their
//! numbers.

use std::path::Path;

use longhaul_store::DatabaseKind;
use rusqlite::{Connection, OptionalExtension as _, params};
use uuid::Uuid;

use super::{
    ATTEMPT, BATCH, Claimed, HOST, ID, MAX_ATTEMPTS, OWNER, PRIORITY, QUEUE, QUEUES, RESULT, Row,
    Sizes, TASK_TYPE, TASK_TYPES, cut, micros_now, node_id, sizes, statement, task_counts,
};

const KIND: DatabaseKind = DatabaseKind::Sqlite;
/// The number of columns of a task. The row's number follows them.
const NUMBER: usize = 45;
/// The parameters of one row of `insert_alike`.
const ROW_MARKS: usize = 22;

/// The connection and its statements.
#[derive(Debug)]
pub(super) struct Loop {
    connection: Connection,
    lane: i64,
    node: Uuid,
    insert: Sizes,
    task_count: &'static str,
    lanes: &'static str,
    pick: &'static str,
    take: &'static str,
    find: &'static str,
    complete: &'static str,
}

impl Loop {
    pub(super) fn open(url: &str, node: Uuid) -> anyhow::Result<Self> {
        let connection =
            longhaul_store::open_sqlite(Path::new(url.trim_start_matches("sqlite://")))?;
        let lane = params![QUEUE, TASK_TYPE, PRIORITY];
        connection.execute(statement(KIND, "insert_lane")?, lane)?;
        let lane = connection.query_row(statement(KIND, "find_lane")?, lane, |row| row.get(0))?;
        let alive = params![micros_now(), node.as_bytes(), "bench", HOST, None::<&str>];

        connection.execute(statement(KIND, "insert_node")?, alive)?;
        Ok(Self {
            connection,
            lane,
            node,
            insert: sizes(KIND, "insert_alike", 0, ROW_MARKS),
            task_count: statement(KIND, "insert_count_deltas")?,
            lanes: statement(KIND, "claim_lanes")?,
            pick: statement(KIND, "claim_pick")?,
            take: statement(KIND, "claim_take")?,
            find: statement(KIND, "complete_find")?,
            complete: statement(KIND, "complete_tasks")?,
        })
    }

    pub(super) fn insert(&mut self, rows: &[Row]) -> anyhow::Result<()> {
        let now = micros_now();
        let none = None::<i64>;
        self.connection.execute_batch("BEGIN IMMEDIATE")?;

        {
            for (text, chunk) in cut(&self.insert, rows) {
                let mut insert = self.connection.prepare_cached(text)?;
                let shared = params![
                    now,
                    self.lane,
                    none,
                    OWNER,
                    none,
                    TASK_TYPE,
                    QUEUE,
                    PRIORITY,
                    MAX_ATTEMPTS,
                    none,
                    none,
                    0,
                    none,
                    none,
                    none,
                    none
                ];

                for (place, value) in shared.iter().enumerate() {
                    insert.raw_bind_parameter(place + 1, value)?;
                }

                for (place, row) in chunk.iter().enumerate() {
                    let own = params![row.id.as_bytes(), none, now, row.parameters];
                    for (column, value) in own.iter().enumerate() {
                        insert.raw_bind_parameter(
                            shared.len() + place * own.len() + column + 1,
                            value,
                        )?;
                    }
                }

                insert.raw_execute()?;
            }
        }

        self.task_count(&task_counts::submitted(rows.len()))?;
        Ok(self.connection.execute_batch("COMMIT")?)
    }

    pub(super) fn claim(&mut self) -> anyhow::Result<Vec<Claimed>> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let claimed = self.claim_within(micros_now())?;
        self.connection.execute_batch("COMMIT")?;
        Ok(claimed)
    }

    fn claim_within(&self, now: i64) -> anyhow::Result<Vec<Claimed>> {
        let mut lanes = self.connection.prepare_cached(self.lanes)?;
        let head =
            |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(2)?));
        let lanes =
            lanes.query_map(params![now, QUEUES, TASK_TYPES, self.node.as_bytes()], head)?;
        let lanes = lanes.collect::<Result<Vec<_>, _>>()?;
        let Some((lane, _)) = lanes.into_iter().find(|(_, head)| head.is_some()) else {
            return Ok(Vec::new());
        };

        let mut pick = self.connection.prepare_cached(self.pick)?;
        let picked = pick.query_map(params![now, lane, BATCH as i64, PRIORITY], |row| {
            Ok((
                row.get::<_, [u8; 16]>(ID)?,
                row.get::<_, i64>(ATTEMPT)?,
                row.get::<_, i64>(NUMBER)?,
            ))
        })?;

        let picked = picked.collect::<Result<Vec<_>, _>>()?;
        let mut take = self.connection.prepare_cached(self.take)?;
        let mut claimed = Vec::with_capacity(picked.len());

        for (id, attempt, number) in picked {
            let token = node_id();
            // Version 1 is the submit's.
            take.execute(params![
                number,
                token.as_bytes(),
                self.node.as_bytes(),
                HOST,
                attempt + 1,
                2,
                now,
                now
            ])?;

            claimed.push(Claimed {
                id: Uuid::from_bytes(id),
                attempt: attempt + 1,
                token,
            });
        }

        self.task_count(&task_counts::claimed(claimed.len()))?;
        Ok(claimed)
    }

    pub(super) fn finish(&mut self, claimed: &[Claimed]) -> anyhow::Result<usize> {
        let now = micros_now();
        let none = None::<i64>;
        let mut ended = 0;
        self.connection.execute_batch("BEGIN IMMEDIATE")?;

        {
            let mut find = self.connection.prepare_cached(self.find)?;
            let mut complete = self.connection.prepare_cached(self.complete)?;
            for Claimed { id, attempt, token } in claimed {
                let lease = params![id.as_bytes(), attempt, token.as_bytes()];
                let number: Option<i64> = find.query_row(lease, |row| row.get(0)).optional()?;
                ended += complete.execute(params![now, number, RESULT, none])?;
            }
        }

        self.task_count(&task_counts::completed(claimed.len()))?;
        self.connection.execute_batch("COMMIT")?;
        Ok(ended)
    }

    fn task_count(&self, lines: &[task_counts::Line]) -> anyhow::Result<()> {
        self.connection
            .prepare_cached(self.task_count)?
            .execute([task_counts::document(lines)])?;
        Ok(())
    }
}
