//! What MySQL reads: claims and counts must not pass over all that is due tomorrow. Its planner finds a lane by equality and
//! then reads it to its end, unless the statement keeps it from that.

use libtest_mimic::Trial;
use longhaul_domain::{Json, NewTask, NodeId, RunAt, contract::Store as _, event::OutboxPolicy};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlConnection, Row as _};

use crate::{
    fresh::{Backend, random_id},
    trial,
};

/// Tasks of tomorrow in one lane.
const TOMORROW: usize = 2_000;
/// Rows that a statement may read in a small store.
const FEW: u64 = 100;

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial(
        "mysql::backlog::what_is_due_tomorrow_is_not_read_today".to_owned(),
        what_is_due_tomorrow_is_not_read_today,
    )]
}

async fn what_is_due_tomorrow_is_not_read_today() {
    let (store, _, database) = Backend::MySql.store(OutboxPolicy::default()).await;
    let node_id = NodeId(random_id());
    store.register_node(node_id, "n", "h", None).await.unwrap();
    let task = NewTask::new("u-1", "t", "q", Json::parse("parameters", "null").unwrap());
    let later = NewTask { run_at: RunAt::AfterMs(24 * 3_600 * 1_000), ..task };
    for _ in 0..TOMORROW / 500 {
        store.submit_tasks(vec![later.clone(); 500]).await.unwrap();
    }
    let node = format!("X'{}'", node_id.0.simple());
    let no_id = format!("X'{}'", "f".repeat(32));
    let statements = [
        (include_str!("../../src/mysql/sql/claim_lanes.sql"), vec!["0", "'[\"q\"]'", "'[\"t\"]'", &node]),
        (include_str!("../../src/mysql/sql/claim_peek.sql"), vec!["0", "1", "500", "0"]),
        (include_str!("../../src/mysql/sql/claim_pick.sql"), vec!["0", "1", "500", "0"]),
        (include_str!("../../src/mysql/sql/count_ahead.sql"), vec!["'q'", "1", "1000", "1000", &no_id, "1000"]),
    ];
    let mut connection = MySqlConnection::connect(&database.url).await.unwrap();
    connection.execute("ANALYZE TABLE tasks, lanes").await.unwrap();
    for (text, values) in statements {
        let mut statement = text.replace("{now}", "1000").replace("{task_columns}", "id");
        for (n, value) in values.iter().enumerate() {
            statement = statement.replace(&format!("?{}", n + 1), value);
        }
        connection.execute("FLUSH STATUS").await.unwrap();
        connection
            .fetch_all(AssertSqlSafe(statement.clone()))
            .await
            .unwrap_or_else(|error| panic!("{error}: {statement}"));
        let read = rows_read(&mut connection).await;
        assert!(read <= FEW, "{read} rows are read by {statement}");
    }
    store.close().await;
}

async fn rows_read(connection: &mut MySqlConnection) -> u64 {
    let rows = connection.fetch_all("SHOW SESSION STATUS LIKE 'Handler_read%'").await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(1).parse::<u64>().unwrap()).sum()
}
