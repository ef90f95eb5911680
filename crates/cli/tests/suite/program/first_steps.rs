//! Longhaul as a new user tries it, over HTTP alone: every sample, live events, a cancel, a dead
//! letter and its retry, a novel. After a power cut everything finishes and nothing is done twice.

use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::client::Call;
use crate::database::{Backend, Database};
use crate::program::running::Running;
use crate::trial::on_every_store;

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        every_sample_can_be_tried_over_http,
        everything_finishes_after_a_kill_and_nothing_is_done_twice
    ]
}

const NOVELS: &str = "/novel/api/novels";

async fn start(store: Backend, database: &Database) -> Running {
    let token = if store == Backend::Sqlite {
        String::new()
    } else {
        database.token("u-1").await
    };
    Running::start(store, database, &token).await
}

async fn every_sample_can_be_tried_over_http(store: Backend) {
    let database = Database::make(store).await;
    let node = start(store, &database).await;
    each_sample_ends_as_documented(&node).await;
    a_task_is_followed_live(&node).await;
    a_running_task_is_cancelled(&node).await;
    a_dead_letter_is_retried(&node).await;

    let novel = import_the_sample(&node).await;
    let summaries = all_summaries(&node, &novel).await;
    assert!(
        summaries.len() >= 3 && summaries.iter().all(|text| text.len() > 20),
        "{summaries:?}"
    );
}

/// Each sample with its parameters and its result, or null if that varies.
fn samples() -> Vec<(&'static str, Value, Value)> {
    vec![
        (
            "sample.echo",
            json!({ "a": [1, "é"] }),
            json!({ "a": [1, "é"] }),
        ),
        ("sample.sleep", json!({ "ms": 20 }), Value::Null),
        (
            "sample.fail",
            json!({ "kind": "retryable", "times": 1, "retryAfterMs": 1 }),
            json!({ "attempt": 2 }),
        ),
        (
            "sample.progress",
            json!({ "steps": 3, "stepMs": 1 }),
            json!({ "steps": 3 }),
        ),
        (
            "sample.fanout",
            json!({ "children": 4 }),
            json!({ "completed": 4, "failed": 0 }),
        ),
        (
            "sample.checkpoint",
            json!({ "steps": 3, "stepMs": 1 }),
            json!({ "steps": 3, "resumedFrom": 0 }),
        ),
        (
            "sample.stream",
            json!({ "chunks": 3, "chunkMs": 1 }),
            json!({ "chunks": 3, "resumedFrom": 0 }),
        ),
        ("sample.artifact", json!({ "bytes": 1_000 }), Value::Null),
    ]
}

async fn each_sample_ends_as_documented(node: &Running) {
    let samples = samples();
    let known: Vec<Value> = node.get("/api/types").await["items"]
        .as_array()
        .unwrap()
        .clone();
    let known: Vec<&str> = known
        .iter()
        .filter_map(|one| one["taskType"].as_str())
        .collect();

    let is_sample = |name: &&str| name.starts_with("sample.");
    assert_eq!(
        known.into_iter().filter(is_sample).count(),
        samples.len(),
        "no sample is left out"
    );

    for (task_type, parameters, result) in samples {
        let id = node.submit(task_type, parameters, json!({})).await;
        let task = node.until_status(&id, "COMPLETED").await;
        if !result.is_null() {
            assert_eq!(task["result"], result, "{task_type}");
        }

        if task_type == "sample.artifact" {
            let file = node
                .send(Call::get(task["resultUrl"].as_str().unwrap()))
                .await;
            assert_eq!((file.status, file.text.len()), (200, 1_000));
        }

        if task_type == "sample.stream" {
            let chunks = node
                .follow(format!("/api/tasks/{id}/stream"))
                .await
                .until("end")
                .await;

            let text: String = chunks
                .iter()
                .filter_map(|event| event.data["text"].as_str())
                .collect();
            assert_eq!(text, "chunk 1\nchunk 2\nchunk 3\n");
        }
    }
}

async fn a_task_is_followed_live(node: &Running) {
    // The task must not start before its events are followed.
    let queue = |what: &str| Call::new("POST", format!("/api/queues/free_default/{what}"));
    node.send(queue("pause")).await.expect(204);
    let id = node
        .submit(
            "sample.progress",
            json!({ "steps": 40, "stepMs": 10 }),
            json!({}),
        )
        .await;

    let mut events = node.follow(format!("/api/tasks/{id}/events")).await;
    node.send(queue("resume")).await.expect(204);
    let events_seen = events.until("completed").await;
    assert_eq!(
        events_seen[0].name, "state",
        "the stream starts with the state"
    );
    assert!(
        events_seen.iter().any(|event| event.name == "progress"),
        "{events_seen:?}"
    );
    let versions: Vec<u64> = events_seen
        .iter()
        .filter_map(|event| event.data["version"].as_u64())
        .collect();
    assert!(versions.is_sorted(), "{versions:?}");
}

async fn a_running_task_is_cancelled(node: &Running) {
    let id = node
        .submit("sample.sleep", json!({ "ms": 3_600_000 }), json!({}))
        .await;
    node.until_status(&id, "RUNNING").await;
    node.send(Call::new("DELETE", format!("/api/tasks/{id}")))
        .await
        .expect(204);
    node.until_status(&id, "CANCELLED").await;
}

async fn a_dead_letter_is_retried(node: &Running) {
    let parameters = json!({ "kind": "retryable", "times": 2, "retryAfterMs": 1 });
    let id = node
        .submit("sample.fail", parameters, json!({ "maxAttempts": 2 }))
        .await;
    node.until_status(&id, "DEAD_LETTER").await;

    let dead = node.all("/api/tasks/dead-letter").await;
    assert_eq!((dead.len(), &dead[0]["taskId"]), (1, &json!(id)));
    node.send(Call::new("POST", format!("/api/tasks/{id}/retry")))
        .await
        .expect(202);
    assert_eq!(
        node.until_status(&id, "COMPLETED").await["result"],
        json!({ "attempt": 3 })
    );
    assert!(node.all("/api/tasks/dead-letter").await.is_empty());
}

struct Novel {
    path: String,
    task: String,
}

async fn import_the_sample(node: &Running) -> Novel {
    let answer = node
        .send(Call::new("POST", format!("{NOVELS}/sample")))
        .await
        .expect(202);
    let field = |name: &str| answer[name].as_str().unwrap().to_owned();

    Novel {
        path: format!("{NOVELS}/{}", field("novelId")),
        task: field("taskId"),
    }
}

/// The summary of each scene that has one yet.
fn summaries_of(novel: &Value) -> Vec<Option<String>> {
    let chapters = novel["chapters"].as_array().unwrap().iter();
    let scenes = chapters.flat_map(|chapter| chapter["scenes"].as_array().unwrap());
    scenes
        .map(|scene| scene["summary"].as_str().map(str::to_owned))
        .collect()
}

async fn all_summaries(node: &Running, novel: &Novel) -> Vec<String> {
    node.until_status(&novel.task, "COMPLETED").await;
    let found = summaries_of(&node.get(&novel.path).await);
    found
        .into_iter()
        .map(|summary| summary.expect("a summary of each scene"))
        .collect()
}

/// The tasks that run at the power cut.
struct Work {
    steps: String,
    output: String,
    fanout: String,
    novel: Novel,
}

/// Each task takes a quarter of a minute, so that it still runs when its start has been seen, even
/// on a busy machine.
const STEPS: u64 = 60;
const STEP_MS: u64 = 250;
const CHILD_MS: u64 = STEPS * STEP_MS;
const SLOW_NOVEL: [(&str, &str); 1] = [("NOVEL_PACE_MS", "200")];
const CHILDREN: usize = 20;
/// Every fourth child fails, at once.
const FAILING: usize = CHILDREN / 4;

async fn begin(node: &Running) -> Work {
    let steps = json!({ "steps": STEPS, "stepMs": STEP_MS });
    let chunks = json!({ "chunks": STEPS, "chunkMs": STEP_MS });
    let children = json!({ "children": CHILDREN, "childMs": CHILD_MS, "failEvery": 4 });
    let work = Work {
        steps: node.submit("sample.checkpoint", steps, json!({})).await,
        output: node.submit("sample.stream", chunks, json!({})).await,
        fanout: node.submit("sample.fanout", children, json!({})).await,
        novel: import_the_sample(node).await,
    };

    let path = |id: &str, what: &str| format!("/api/tasks/{id}/{what}");
    let mut written = node.follow(path(&work.output, "stream")).await;
    for _ in 0..3 {
        assert_eq!(written.next().await.unwrap().name, "chunk");
    }

    let mut events = node.follow(path(&work.steps, "events")).await;
    events.until("progress").await;

    let has_a_failure = |children: &Value| {
        children["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["status"] == "FAILED")
    };
    node.until(&path(&work.fanout, "children"), has_a_failure)
        .await;
    node.until(&path(&work.novel.task, "children"), |list| {
        !list["items"].as_array().unwrap().is_empty()
    })
    .await;

    work
}

async fn everything_finishes_after_a_kill_and_nothing_is_done_twice(store: Backend) {
    let database = Database::make(store).await;
    let token = if store == Backend::Sqlite {
        String::new()
    } else {
        database.token("u-1").await
    };
    let node = Running::start_with(store, &database, &token, &SLOW_NOVEL).await;
    let work = begin(&node).await;
    let before = node.all("/api/tasks").await;

    for id in [&work.steps, &work.output, &work.fanout, &work.novel.task] {
        let task = before
            .iter()
            .find(|task| task["taskId"] == json!(id))
            .unwrap();
        assert!(task["finishedAt"].is_null(), "it has not ended: {task}");
    }

    node.kill().await;

    let node = Running::start_with(store, &database, &token, &SLOW_NOVEL).await;
    let steps = node.until_status(&work.steps, "COMPLETED").await;
    let output = node.until_status(&work.output, "COMPLETED").await;
    for (task, name) in [(&steps, "steps"), (&output, "chunks")] {
        it_continued_from_its_checkpoint(&node, task, name).await;
    }

    the_remaining_output_exists_once(&node, &output).await;
    no_child_exists_twice(&node, &work.fanout).await;

    let summaries = all_summaries(&node, &work.novel).await;
    let children = node
        .all(&format!("/api/tasks/{}/children", work.novel.task))
        .await;
    assert_eq!(
        children.len(),
        summaries.len(),
        "each scene is summarized once"
    );

    let after = node.all("/api/tasks").await;
    assert_eq!(
        after.len(),
        4 + CHILDREN + summaries.len(),
        "no task exists twice"
    );

    let completed = after
        .iter()
        .filter(|task| task["status"] == "COMPLETED")
        .count();
    assert_eq!(
        completed,
        after.len() - 1 - FAILING,
        "all but the fanout and its failing children: {after:?}"
    );

    for ended in before.iter().filter(|task| task["finishedAt"].is_string()) {
        let now = after
            .iter()
            .find(|task| task["taskId"] == ended["taskId"])
            .unwrap();
        assert_eq!(now, ended, "ended tasks are unchanged");
    }
}

/// `name` is the field of the result that counts the steps.
async fn it_continued_from_its_checkpoint(node: &Running, task: &Value, name: &str) {
    let resumed = task["result"]["resumedFrom"].as_u64().unwrap();
    assert!((1..STEPS).contains(&resumed), "{task}");
    assert_eq!(
        (&task["result"][name], &task["attempt"]),
        (&json!(STEPS), &json!(2))
    );

    let id = task["taskId"].as_str().unwrap();
    let attempts = node.all(&format!("/api/tasks/{id}/attempts")).await;
    assert_eq!(attempts.len(), 2, "{attempts:?}");
}

async fn no_child_exists_twice(node: &Running, id: &str) {
    let fanout = node.until_status(id, "COMPLETED_WITH_ERRORS").await;
    assert_eq!(
        fanout["result"],
        json!({ "completed": CHILDREN - FAILING, "failed": FAILING })
    );

    let children = node.all(&format!("/api/tasks/{id}/children")).await;
    assert_eq!(children.len(), CHILDREN);
}

/// A single node keeps output in memory: what was written before the kill is gone, and the rest
/// exists once.
async fn the_remaining_output_exists_once(node: &Running, output: &Value) {
    let id = output["taskId"].as_str().unwrap();
    let resumed = output["result"]["resumedFrom"].as_u64().unwrap();
    let chunks = node
        .follow(format!("/api/tasks/{id}/stream"))
        .await
        .until("end")
        .await;
    let text: String = chunks
        .iter()
        .filter_map(|event| event.data["text"].as_str())
        .collect();

    let wanted: String = (resumed + 1..=STEPS)
        .map(|chunk| format!("chunk {chunk}\n"))
        .collect();
    assert_eq!(text, wanted);
}
