//! The database after the run, read with plain SQL and without any code of Longhaul.

use longhaul_domain::Status;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use sqlx::Connection as _;
use uuid::Uuid;

use crate::run::Store;

/// A row of `tasks`. The fields have the order of [`TASK_COLUMNS`].
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TaskRow {
    pub(crate) id: Uuid,
    pub(crate) parent: Option<Uuid>,
    pub(crate) node: Option<Uuid>,
    pub(crate) task_type: String,
    pub(crate) status: Status,
    pub(crate) attempt: u32,
    pub(crate) retry_count: u32,
    pub(crate) crash_count: u32,
    pub(crate) created_at: i64,
    pub(crate) due_at: i64,
    pub(crate) started_at: Option<i64>,
    pub(crate) last_attempt_at: Option<i64>,
    pub(crate) finished_at: Option<i64>,
    pub(crate) children_total: u32,
    pub(crate) children_completed: u32,
    pub(crate) children_with_errors: u32,
    pub(crate) children_failed: u32,
    pub(crate) children_cancelled: u32,
    pub(crate) parameters: String,
    pub(crate) checkpoint: Option<String>,
    pub(crate) result: Option<String>,
    pub(crate) error: Option<String>,
}

const TASK_COLUMNS: &[Column] = &[
    Column::Id("id"),
    Column::Id("parent_id"),
    Column::Id("node_id"),
    Column::Plain("task_type"),
    Column::Plain("status"),
    Column::Plain("attempt"),
    Column::Plain("retry_count"),
    Column::Plain("crash_count"),
    Column::Plain("created_at"),
    Column::Plain("due_at"),
    Column::Plain("started_at"),
    Column::Plain("last_attempt_at"),
    Column::Plain("finished_at"),
    Column::Plain("children_total"),
    Column::Plain("children_completed"),
    Column::Plain("children_with_errors"),
    Column::Plain("children_failed"),
    Column::Plain("children_cancelled"),
    Column::Plain("parameters"),
    Column::Plain("checkpoint"),
    Column::Plain("result"),
    Column::Plain("error"),
];

/// A row of `attempts`: an attempt of the task's history.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct AttemptRow {
    pub(crate) task: Uuid,
    pub(crate) node: Option<Uuid>,
    pub(crate) attempt: u32,
    pub(crate) outcome: String,
    pub(crate) started_at: Option<i64>,
    pub(crate) ended_at: Option<i64>,
    pub(crate) error: Option<String>,
}

const ATTEMPT_COLUMNS: &[Column] = &[
    Column::Id("task_id"),
    Column::Id("node_id"),
    Column::Plain("attempt"),
    Column::Plain("outcome"),
    Column::Plain("started_at"),
    Column::Plain("ended_at"),
    Column::Plain("error"),
];

/// A row of `v_counts`: Longhaul's own count of tasks by type and status.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CountRow {
    pub(crate) task_type: String,
    pub(crate) status: String,
    pub(crate) tasks: Value,
}

const COUNT_COLUMNS: &[Column] = &[
    Column::Plain("task_type"),
    Column::Plain("status"),
    Column::Plain("tasks"),
];

#[derive(Debug, Clone, Copy)]
enum Column {
    Id(&'static str),
    Plain(&'static str),
}

/// The tables that the checker reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dump {
    pub(crate) tasks: Vec<TaskRow>,
    pub(crate) attempts: Vec<AttemptRow>,
    pub(crate) counts: Vec<CountRow>,
    /// The number of rows of `idempotency_keys` without a task.
    pub(crate) keys_without_task: i64,
}

pub(crate) async fn read(store: Store, url: &str) -> anyhow::Result<Dump> {
    let keys_without_task: Vec<String> = texts(
        store,
        url,
        "SELECT CAST(count(*) AS char(20)) FROM idempotency_keys \
         WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = idempotency_keys.task_id)",
    )
    .await?;

    Ok(Dump {
        tasks: rows(store, url, TASK_COLUMNS, "tasks").await?,
        attempts: rows(store, url, ATTEMPT_COLUMNS, "attempts").await?,
        counts: rows(store, url, COUNT_COLUMNS, "v_counts").await?,
        keys_without_task: keys_without_task.concat().trim().parse()?,
    })
}

/// Reads every row as a JSON array, which all three databases can build, so that they need no other
/// differences.
async fn rows<T: DeserializeOwned>(
    store: Store,
    url: &str,
    columns: &[Column],
    table: &str,
) -> anyhow::Result<Vec<T>> {
    let shown: Vec<String> = columns.iter().map(|column| shown(store, *column)).collect();
    let shown = shown.join(", ");
    let statement = match store {
        Store::Sqlite => format!("SELECT json_array({shown}) FROM {table}"),
        Store::Postgres => format!("SELECT json_build_array({shown})::text FROM {table}"),
        Store::Mysql => format!("SELECT CONVERT(JSON_ARRAY({shown}) USING utf8mb4) FROM {table}"),
    };

    let texts = texts(store, url, &statement).await?;
    let rows = texts.iter().map(|text| serde_json::from_str(text));
    Ok(rows.collect::<Result<_, _>>()?)
}

fn shown(store: Store, column: Column) -> String {
    match (column, store) {
        (Column::Id(name), Store::Sqlite | Store::Mysql) => {
            format!("NULLIF(lower(hex({name})), '')")
        }
        (Column::Id(name) | Column::Plain(name), _) => name.to_owned(),
    }
}

async fn texts(store: Store, url: &str, statement: &str) -> anyhow::Result<Vec<String>> {
    let sql = sqlx::AssertSqlSafe(statement.to_owned());
    Ok(match store {
        Store::Sqlite => {
            sqlx::query_scalar(sql)
                .fetch_all(&mut sqlx::SqliteConnection::connect(url).await?)
                .await?
        }
        Store::Postgres => {
            sqlx::query_scalar(sql)
                .fetch_all(&mut sqlx::PgConnection::connect(url).await?)
                .await?
        }
        Store::Mysql => {
            sqlx::query_scalar(sql)
                .fetch_all(&mut sqlx::MySqlConnection::connect(url).await?)
                .await?
        }
    })
}
