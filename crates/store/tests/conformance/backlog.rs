//! What a backlog costs MySQL. Claims and counts must not pass over all that is due tomorrow: its
//! planner finds a lane by equality and then reads it to its end, unless the statement keeps it
//! from that. And the rows of a backlog lie close together: one that grows where it stands makes
//! the server put its page in order again.

use libtest_mimic::Trial;
use longhaul_domain::{
    Json, NewTask, NodeId, RunAt, Status,
    contract::store::{AttemptEnd, AttemptReport, ClaimRequest, Leases, TaskCommands, Verdict},
    event::OutboxPolicy,
};
use longhaul_testkit::names::queue_name;
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
    vec![
        trial(
            "mysql::backlog::what_is_due_tomorrow_is_not_read_today".to_owned(),
            what_is_due_tomorrow_is_not_read_today,
        ),
        trial(
            "mysql::backlog::neither_a_claim_nor_an_end_makes_a_row_larger".to_owned(),
            neither_a_claim_nor_an_end_makes_a_row_larger,
        ),
    ]
}

/// The bytes of a row that a claim or an end changes, as InnoDB stores them: a NULL takes none, and
/// a value of any length takes one or two more.
const CHANGING_BYTES: &str = "SELECT LENGTH(status) + 4 * (lane IS NOT NULL)
        + 8 * ((started_at IS NOT NULL) + (last_attempt_at IS NOT NULL) + (finished_at IS NOT NULL))
        + COALESCE(LENGTH(lease_token), 0) + COALESCE(LENGTH(node_id), 0)
        + COALESCE(LENGTH(host) + 2, 0) + COALESCE(LENGTH(result) + 2, 0)
        + COALESCE(LENGTH(reserve) + 1, 0)
    FROM tasks";

async fn neither_a_claim_nor_an_end_makes_a_row_larger() {
    let (store, _, database) = Backend::MySql.store(OutboxPolicy::default()).await;
    let node_id = NodeId(random_id());
    let host = "worker-7f9c4b6d5-x2x9p.example".to_owned();
    store
        .register_node(node_id, "n", &host, None)
        .await
        .unwrap();
    let json = |text| Json::parse("a document", text).unwrap();

    store
        .submit_task(NewTask::new("u-1", "t", queue_name("q"), json("{}")))
        .await
        .unwrap();
    let waiting = database.count(CHANGING_BYTES).await;
    let queues = vec![queue_name("q")];
    let task_types = vec!["t".to_owned()];
    let request = ClaimRequest {
        node_id,
        host,
        queues,
        task_types,
        limit: 1,
    };

    let claimed = store.claim_tasks(&request).await.unwrap();
    let running = database.count(CHANGING_BYTES).await;
    assert!(running <= waiting, "{waiting} bytes grew to {running}");
    let outcome = AttemptEnd::Completed {
        result: Some(json(r#"{"pages":12,"words":3406}"#)),
        result_url: None,
    };
    let verdicts = store
        .finish_tasks(&[AttemptReport {
            lease: claimed[0].lease().unwrap(),
            end: outcome,
        }])
        .await
        .unwrap();

    assert_eq!(verdicts, [Verdict::Applied(Status::Completed)]);
    let ended = database.count(CHANGING_BYTES).await;
    assert!(ended <= running, "{running} bytes grew to {ended}");
    assert_eq!(
        database
            .count("SELECT COUNT(*) FROM tasks WHERE reserve IS NULL")
            .await,
        1,
        "history keeps no reserve"
    );

    store.close().await;
}

async fn what_is_due_tomorrow_is_not_read_today() {
    let (store, _, database) = Backend::MySql.store(OutboxPolicy::default()).await;
    let node_id = NodeId(random_id());
    store.register_node(node_id, "n", "h", None).await.unwrap();
    let task = NewTask::new(
        "u-1",
        "t",
        queue_name("q"),
        Json::parse("parameters", "null").unwrap(),
    );
    let later = NewTask {
        run_at: RunAt::AfterMs(24 * 3_600 * 1_000),
        ..task
    };

    for _ in 0..TOMORROW / 500 {
        store.submit_tasks(vec![later.clone(); 500]).await.unwrap();
    }

    let node = format!("X'{}'", node_id.0.simple());
    let no_id = format!("X'{}'", "f".repeat(32));
    let statements = [
        (
            include_str!("../../src/mysql/sql/claim_lanes.sql"),
            vec!["0", "'[\"q\"]'", "'[\"t\"]'", &node],
        ),
        (
            include_str!("../../src/mysql/sql/claim_peek.sql"),
            vec!["0", "1", "500", "0"],
        ),
        (
            include_str!("../../src/mysql/sql/claim_pick.sql"),
            vec!["0", "1", "500", "0"],
        ),
        (
            include_str!("../../src/mysql/sql/count_ahead.sql"),
            vec!["'q'", "1", "1000", "1000", &no_id, "1000"],
        ),
    ];

    let mut connection = MySqlConnection::connect(&database.url).await.unwrap();
    connection
        .execute("ANALYZE TABLE tasks, lanes")
        .await
        .unwrap();

    for (text, values) in statements {
        let mut statement = text
            .replace("{now}", "1000")
            .replace("{task_columns}", "id");
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
    let rows = connection
        .fetch_all("SHOW SESSION STATUS LIKE 'Handler_read%'")
        .await
        .unwrap();
    rows.iter()
        .map(|row| row.get::<String, _>(1).parse::<u64>().unwrap())
        .sum()
}
