//! The log of a task's life: each line that `docs/logging.md` lists is found by the search that it
//! documents, and has the fields that it names.

use std::collections::BTreeSet;
use std::path::Path;

use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::client::Call;
use crate::telemetry::Program;
use crate::trial::once;

pub(crate) fn trials() -> Vec<Trial> {
    once![each_step_of_a_task_is_found_by_its_id]
}

const DOCUMENT: &str = "../../docs/logging.md";
const BEGIN: &str = "<!-- steps -->";
const END: &str = "<!-- steps end -->";
const FIELDS: [&str; 4] = ["task_type", "user_id", "queue", "attempt"];
const CORRELATION: &str = "order 17";

/// A level and a message.
type Line = (String, String);

/// The lines that the document lists.
fn documented() -> BTreeSet<Line> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    let text = std::fs::read_to_string(path).unwrap();
    let (_, rest) = text.split_once(BEGIN).expect("a table of steps");
    let (table, _) = rest.split_once(END).expect("the end of the table");

    let rows = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    let cells = rows.skip(1).map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        (cells[2].to_owned(), cells[3].trim_matches('`').to_owned())
    });
    cells.collect()
}

/// The lines of one task, found as the document says: by its text, not by its JSON.
fn search(log: &str, task_id: &str) -> BTreeSet<Line> {
    let wanted = format!("\"task_id\":\"{task_id}\"");
    let mut found = BTreeSet::new();

    for text in log.lines().filter(|line| line.contains(&wanted)) {
        let line: Value = serde_json::from_str(text).expect(text);
        for field in FIELDS {
            assert!(!line[field].is_null(), "{field} is missing: {text}");
        }
        assert_eq!(line["correlation_id"], CORRELATION, "{text}");

        let part = |name: &str| line[name].as_str().unwrap().to_owned();
        found.insert((part("level"), part("message")));
    }

    found
}

async fn run(program: &Program, task_type: &str, parameters: Value, attempts: u32) -> String {
    let body = json!({
        "taskType": task_type,
        "parameters": parameters,
        "maxAttempts": attempts,
        "correlationId": CORRELATION,
    });
    let task = program.run_task(&body, &[]).await;
    task["taskId"].as_str().unwrap().to_owned()
}

/// Submits a task for later, moves it and cancels it.
async fn reschedule_and_cancel(program: &Program) -> String {
    let body = json!({
        "taskType": "sample.echo",
        "parameters": 1,
        "delay": "1h",
        "correlationId": CORRELATION,
    });
    let made = Call::post("/api/tasks", &body).send(program.address).await;
    let id = made.expect(202)["taskId"].as_str().unwrap().to_owned();
    let path = format!("/api/tasks/{id}");

    let change = Call::new("PATCH", &path).json(&json!({ "priority": 9 }));
    change.send(program.address).await.expect(200);
    let cancel = Call::new("DELETE", &path).send(program.address).await;
    assert_eq!(cancel.status, 204);

    id
}

async fn each_step_of_a_task_is_found_by_its_id() {
    let filter = "info,longhaul_engine=debug";
    let program = Program::start(&["--log-format", "json", "--log", filter]).await;
    let fails = |kind: &str| json!({ "kind": kind, "times": 1, "retryAfterMs": 1 });

    let ids = [
        run(&program, "sample.fail", fails("retryable"), 2).await,
        run(&program, "sample.fail", fails("retryable"), 1).await,
        run(&program, "sample.fail", fails("fatal"), 1).await,
        run(&program, "sample.fanout", json!({ "children": 2 }), 1).await,
        reschedule_and_cancel(&program).await,
    ];

    // A parent may be claimed before its requeue is published; a replay always logs the line.
    let replay = Call::post(format!("/api/tasks/{}/retry", ids[2]), &json!({}));
    replay.send(program.address).await.expect(202);

    let log = program.stop().await;
    let found: BTreeSet<Line> = ids.iter().flat_map(|id| search(&log, id)).collect();
    let documented = documented();
    assert!(documented.len() > 10, "{documented:?}");
    let missing: Vec<&Line> = documented.difference(&found).collect();
    assert!(missing.is_empty(), "not in the log: {missing:?}\n{log}");
}
