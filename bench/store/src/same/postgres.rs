//! The statements of PostgreSQL: one for each step, in its own transaction.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use longhaul_store::{DatabaseKind, connect_postgres};
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{
    ATTEMPT, BATCH, Claimed, DUE_AT, HOST, ID, LEASE_TOKEN, MAX_ATTEMPTS, OWNER, PRIORITY, QUEUE,
    RESULT, Row, TASK_TYPE, statement, task_counts,
};

const KIND: DatabaseKind = DatabaseKind::Postgres;
/// The offset of the server's clock.
const SHIFT: i64 = 0;

/// A connection and its statements.
#[derive(Debug)]
pub(super) struct Loop {
    connection: PgConnection,
    lane: i64,
    node: Uuid,
    /// The latest due time that any loop has claimed. The store's claims start there too.
    bound: Arc<AtomicI64>,
    insert: &'static str,
    insert_one: &'static str,
    claim: &'static str,
    complete: &'static str,
}

impl Loop {
    pub(super) async fn open(
        url: &str,
        node: Uuid,
        connections: usize,
    ) -> anyhow::Result<Vec<Self>> {
        let mut first = connect_postgres(url).await?;
        let lane = sqlx::query(statement(KIND, "insert_lane")?)
            .bind(QUEUE)
            .bind(TASK_TYPE)
            .bind(PRIORITY);

        lane.execute(&mut first).await?;
        let lane = sqlx::query(statement(KIND, "find_lane")?)
            .bind(QUEUE)
            .bind(TASK_TYPE)
            .bind(PRIORITY);
        let lane = i64::from(lane.fetch_one(&mut first).await?.try_get::<i32, _>(0)?);
        let alive = sqlx::query(statement(KIND, "insert_node")?)
            .bind(SHIFT)
            .bind(node)
            .bind("bench")
            .bind(HOST);

        alive.bind(None::<&str>).execute(&mut first).await?;
        let bound = Arc::new(AtomicI64::new(0));
        let mut loops = Vec::with_capacity(connections);

        for _ in 0..connections {
            loops.push(Self {
                connection: connect_postgres(url).await?,
                lane,
                node,
                bound: Arc::clone(&bound),
                insert: statement(KIND, "insert_alike")?,
                insert_one: statement(KIND, "insert_task")?,
                claim: statement(KIND, "claim_tasks")?,
                complete: statement(KIND, "complete_tasks")?,
            });
        }

        Ok(loops)
    }

    pub(super) async fn insert(&mut self, rows: &[Row]) -> anyhow::Result<()> {
        if let [row] = rows {
            return self.insert_one(row).await;
        }

        let n = rows.len();
        let query = sqlx::query(self.insert)
            .bind(SHIFT)
            .bind(task_counts::document(&task_counts::submitted(n)))
            .bind(0_i64)
            .bind(rows.iter().map(|row| row.id).collect::<Vec<_>>())
            .bind(vec![None::<&str>; n])
            .bind(vec![None::<i64>; n])
            .bind(
                rows.iter()
                    .map(|row| row.parameters.as_str())
                    .collect::<Vec<_>>(),
            )
            .bind(0_i64)
            .bind(self.lane)
            .bind(None::<Uuid>)
            .bind(OWNER)
            .bind(None::<&str>)
            .bind(TASK_TYPE)
            .bind(QUEUE)
            .bind(PRIORITY)
            .bind(MAX_ATTEMPTS)
            .bind(None::<i64>)
            .bind(None::<i64>)
            .bind(0_i64)
            .bind(None::<&str>)
            .bind(None::<&str>)
            .bind(None::<&str>)
            .bind(None::<&str>);

        query.execute(&mut self.connection).await?;
        Ok(())
    }

    async fn insert_one(&mut self, row: &Row) -> anyhow::Result<()> {
        let query = sqlx::query(self.insert_one)
            .bind(SHIFT)
            .bind(row.id)
            .bind(None::<&str>)
            .bind(self.lane)
            .bind(None::<i64>)
            .bind(0_i64)
            .bind(&row.parameters)
            .bind(None::<Uuid>)
            .bind(OWNER)
            .bind(None::<&str>)
            .bind(TASK_TYPE)
            .bind(QUEUE)
            .bind(PRIORITY)
            .bind(MAX_ATTEMPTS)
            .bind(None::<i64>)
            .bind(None::<i64>)
            .bind(0_i64)
            .bind(None::<&str>)
            .bind(None::<&str>)
            .bind(None::<&str>)
            .bind(None::<&str>);

        query.execute(&mut self.connection).await?;
        Ok(())
    }

    /// Claims from the bound on, and from the start if it finds nothing.
    pub(super) async fn claim(&mut self) -> anyhow::Result<Vec<Claimed>> {
        let bound = self.bound.load(Ordering::Relaxed);
        let rows = match bound {
            0 => self.claim_from(None).await?,
            from => self.claim_from(Some(from)).await?,
        };
        let rows = if rows.is_empty() && bound != 0 {
            self.claim_from(None).await?
        } else {
            rows
        };

        let mut claimed = Vec::with_capacity(rows.len());
        for row in &rows {
            self.bound
                .fetch_max(row.try_get(DUE_AT)?, Ordering::Relaxed);
            let attempt = i64::from(row.try_get::<i32, _>(ATTEMPT)?);
            claimed.push(Claimed {
                id: row.try_get(ID)?,
                attempt,
                token: row.try_get(LEASE_TOKEN)?,
            });
        }

        Ok(claimed)
    }

    async fn claim_from(&mut self, bound: Option<i64>) -> anyhow::Result<Vec<PgRow>> {
        let query = sqlx::query(self.claim)
            .bind(SHIFT)
            .bind(vec![QUEUE])
            .bind(vec![TASK_TYPE])
            .bind(self.node)
            .bind(HOST)
            .bind(BATCH as i64)
            .bind(bound.map(|_| self.lane).into_iter().collect::<Vec<_>>())
            .bind(bound.into_iter().collect::<Vec<_>>());
        Ok(query.fetch_all(&mut self.connection).await?)
    }

    pub(super) async fn finish(&mut self, claimed: &[Claimed]) -> anyhow::Result<usize> {
        let n = claimed.len();
        let query = sqlx::query(self.complete)
            .bind(SHIFT)
            .bind(claimed.iter().map(|task| task.id).collect::<Vec<_>>())
            .bind(claimed.iter().map(|task| task.attempt).collect::<Vec<_>>())
            .bind(claimed.iter().map(|task| task.token).collect::<Vec<_>>())
            .bind(vec![Some(RESULT); n])
            .bind(vec![None::<&str>; n]);
        Ok(query.fetch_all(&mut self.connection).await?.len())
    }
}
