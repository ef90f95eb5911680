//! Dashboard, alerts and the table of metrics match the metrics of the program.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use libtest_mimic::Trial;
use longhaul::Status;
use serde_json::{Value, json};

use crate::database::Backend;
use crate::trial::{once, plain};
use crate::{
    metrics::{scrape, scrape_until},
    server::{Server, setting},
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = once![
        dashboard_and_alerts_use_only_existing_metrics,
        promtool_accepts_rules_their_tests_and_the_metrics,
        the_table_of_metrics_is_current
    ];
    trials.extend(plain![every_alert_links_to_a_section_of_the_documents]);
    trials
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The metrics that a text names.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let is_metric = |word: &&str| {
        ["tasks_", "http_", "process_"]
            .iter()
            .any(|start| word.starts_with(start))
    };
    let base = |word: &str| {
        ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| word.strip_suffix(end))
            .map(str::to_owned)
    };

    words
        .filter(is_metric)
        .map(|word| base(word).unwrap_or_else(|| word.to_owned()))
        .collect()
}

fn expressions(value: &Value) -> Vec<&str> {
    let inner = value.as_object().into_iter().flat_map(|map| map.values());
    let all = inner
        .chain(value.as_array().into_iter().flatten())
        .flat_map(expressions);
    value["expr"].as_str().into_iter().chain(all).collect()
}

/// Runs every sample type, with success and with failure.
async fn run_the_samples(server: &Server) {
    let runs = [
        ("sample.echo", json!(1), json!({})),
        (
            "sample.fail",
            json!({ "kind": "retryable", "retryAfterMs": 1 }),
            json!({ "maxAttempts": 2 }),
        ),
        ("sample.fail", json!({ "kind": "fatal" }), json!({})),
        (
            "sample.fail",
            json!({ "kind": "rate_limited", "times": 1, "retryAfterMs": 1 }),
            json!({}),
        ),
        ("sample.fanout", json!({ "children": 2 }), json!({})),
        (
            "sample.progress",
            json!({ "steps": 2, "stepMs": 1 }),
            json!({}),
        ),
    ];

    for (task_type, parameters, more) in runs {
        let id = server.submit(task_type, parameters, more).await;
        server.until_ended(&id).await;
    }

    let queued = server.submit_for_later("default").await;
    server.until_status(&queued, Status::Queued).await;
}

async fn dashboard_and_alerts_use_only_existing_metrics() {
    let server = Server::start(Backend::Sqlite).await;
    run_the_samples(&server).await;
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/longhaul.json")).unwrap();
    let queries = expressions(&dashboard);
    assert!(queries.len() > 20, "{queries:?}");
    let alerts = read("deploy/prometheus/alerts.yaml");
    let used: BTreeSet<String> = metrics_in(&queries.join("\n"))
        .union(&metrics_in(&alerts))
        .cloned()
        .collect();

    let missing = |text: &str| {
        let shown: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        used.iter()
            .filter(|name| !shown.contains(name.as_str()))
            .cloned()
            .collect::<Vec<String>>()
    };

    let text = scrape_until(&server, |text| missing(text).is_empty()).await;
    assert!(
        missing(&text).is_empty(),
        "{:?} of {used:?}\n{text}",
        missing(&text)
    );
    assert!(used.contains("tasks_queue_size") && used.contains("tasks_execution_seconds"));
}

fn promtool(arguments: &[&str], input: &str) {
    let tool = setting("LONGHAUL_TEST_PROMTOOL")
        .expect("LONGHAUL_TEST_PROMTOOL: run the tests with make test");
    let mut running = Command::new(tool)
        .args(arguments)
        .current_dir(root().join("deploy/prometheus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();

    std::io::Write::write_all(&mut running.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let ended = running.wait_with_output().unwrap();
    let output = String::from_utf8_lossy(&ended.stdout).into_owned()
        + &String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "promtool {arguments:?}: {output}");
}

async fn promtool_accepts_rules_their_tests_and_the_metrics() {
    promtool(&["check", "rules", "alerts.yaml"], "");
    promtool(&["test", "rules", "alerts_test.yaml"], "");
    let server = Server::start(Backend::Sqlite).await;
    run_the_samples(&server).await;
    promtool(&["check", "metrics"], &scrape(&server).await);
}

fn every_alert_links_to_a_section_of_the_documents() {
    let document = read("docs/operations.md");
    let anchors: BTreeSet<String> = document
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(|title| {
            title
                .trim_start_matches('#')
                .trim()
                .to_lowercase()
                .replace(' ', "-")
        })
        .collect();

    let alerts = read("deploy/prometheus/alerts.yaml");
    let runbooks: Vec<&str> = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("runbook: "))
        .collect();
    assert_eq!(runbooks.len(), alerts.matches("- alert: ").count());
    for runbook in runbooks {
        let anchor = runbook.strip_prefix("docs/operations.md#").unwrap();
        assert!(anchors.contains(anchor), "{anchor} is not in {anchors:?}");
    }
}

const BEGIN: &str = "<!-- metrics: written by `make generate`; do not edit -->\n";
const END: &str = "<!-- metrics end -->\n";

async fn the_table_of_metrics_is_current() {
    let server = Server::start(Backend::Sqlite).await;
    let mut table =
        "| metric | kind | labels | what it is |\n| --- | --- | --- | --- |\n".to_owned();

    for one in server.longhaul.engine().metrics().described() {
        let labels: Vec<String> = one
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        writeln!(
            table,
            "| `{}` | {} | {} | {}. |",
            one.name,
            one.kind.as_str(),
            labels.join(", "),
            one.help
        )
        .unwrap();
    }

    let document = read("docs/operations.md");
    let (before, rest) = document.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let wanted = format!("{before}{BEGIN}{table}{END}{after}");

    if setting("LONGHAUL_GENERATE").is_some() {
        std::fs::write(root().join("docs/operations.md"), wanted).unwrap();
    } else {
        assert!(
            document == wanted,
            "docs/operations.md is not what the metrics say: make generate"
        );
    }
}
