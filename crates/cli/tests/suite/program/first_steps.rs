//! What somebody does on the first day, by HTTP alone: every sample, live, cancelled, buried and brought back, a novel; and a
//! power cut in the middle, after which everything finishes and nothing happens twice.

use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::database::{Backend, Database};
use crate::http::client::Call;
use crate::program::running::Running;
use crate::trial::on_every_store;

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        everything_can_be_tried_by_http_alone,
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

async fn everything_can_be_tried_by_http_alone(store: Backend) {
    let database = Database::make(store).await;
    let node = start(store, &database).await;
    each_sample_ends_as_it_says(&node).await;
    a_task_is_watched_live(&node).await;
    a_running_task_is_cancelled(&node).await;
    a_dead_letter_is_retried(&node).await;
    let novel = import_the_sample(&node).await;
    let summaries = all_summaries(&node, &novel).await;
    assert!(
        summaries.len() >= 3 && summaries.iter().all(|text| text.len() > 20),
        "{summaries:?}"
    );
}

async fn each_sample_ends_as_it_says(node: &Running) {
    let samples = [
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
    ];
    let known: Vec<Value> = node.get("/api/types").await["items"]
        .as_array()
        .unwrap()
        .clone();
    let known: Vec<&str> = known
        .iter()
        .filter_map(|one| one["taskType"].as_str())
        .collect();
    let is_told = |name: &&str| name.starts_with("sample.");
    assert_eq!(
        known.into_iter().filter(is_told).count(),
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
            let told = node
                .follow(format!("/api/tasks/{id}/stream"))
                .await
                .until("end")
                .await;
            let text: String = told
                .iter()
                .filter_map(|event| event.data["text"].as_str())
                .collect();
            assert_eq!(text, "chunk 1\nchunk 2\nchunk 3\n");
        }
    }
}

async fn a_task_is_watched_live(node: &Running) {
    // It does not begin before somebody watches.
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
    let heard = events.until("completed").await;
    assert_eq!(heard[0].name, "state", "it starts with what is");
    assert!(
        heard.iter().any(|event| event.name == "progress"),
        "{heard:?}"
    );
    let versions: Vec<u64> = heard
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
    let word = |name: &str| answer[name].as_str().unwrap().to_owned();
    Novel {
        path: format!("{NOVELS}/{}", word("novelId")),
        task: word("taskId"),
    }
}

/// The summary of each scene, or nothing where there is none yet.
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

/// What runs when the power goes.
struct Work {
    steps: String,
    output: String,
    brood: String,
    novel: Novel,
}

/// Everything takes a quarter of a minute: on a busy machine, too, it has not ended when it is seen to have begun.
const STEPS: u64 = 60;
const STEP_MS: u64 = 250;
const CHILD_MS: u64 = STEPS * STEP_MS;
const SLOW_WORDS: [(&str, &str); 1] = [("NOVEL_PACE_MS", "200")];
const CHILDREN: usize = 20;
/// Every fourth child fails, and does so at once.
const FAILING: usize = CHILDREN / 4;

async fn begin(node: &Running) -> Work {
    let steps = json!({ "steps": STEPS, "stepMs": STEP_MS });
    let chunks = json!({ "chunks": STEPS, "chunkMs": STEP_MS });
    let children = json!({ "children": CHILDREN, "childMs": CHILD_MS, "failEvery": 4 });
    let work = Work {
        steps: node.submit("sample.checkpoint", steps, json!({})).await,
        output: node.submit("sample.stream", chunks, json!({})).await,
        brood: node.submit("sample.fanout", children, json!({})).await,
        novel: import_the_sample(node).await,
    };
    let path = |id: &str, what: &str| format!("/api/tasks/{id}/{what}");
    let mut written = node.follow(path(&work.output, "stream")).await;
    for _ in 0..3 {
        assert_eq!(written.next().await.unwrap().name, "chunk");
    }
    let mut news = node.follow(path(&work.steps, "events")).await;
    news.until("progress").await;
    let is_some = |children: &Value| {
        children["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["status"] == "FAILED")
    };
    node.until(&path(&work.brood, "children"), is_some).await;
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
    let node = Running::start_with(store, &database, &token, &SLOW_WORDS).await;
    let work = begin(&node).await;
    let before = node.all("/api/tasks").await;
    for id in [&work.steps, &work.output, &work.brood, &work.novel.task] {
        let task = before
            .iter()
            .find(|task| task["taskId"] == json!(id))
            .unwrap();
        assert!(task["finishedAt"].is_null(), "it is in the middle: {task}");
    }
    node.kill().await;

    let node = Running::start_with(store, &database, &token, &SLOW_WORDS).await;
    let steps = node.until_status(&work.steps, "COMPLETED").await;
    let output = node.until_status(&work.output, "COMPLETED").await;
    for (task, name) in [(&steps, "steps"), (&output, "chunks")] {
        let resumed = task["result"]["resumedFrom"].as_u64().unwrap();
        assert!(
            (1..STEPS).contains(&resumed),
            "it went on where it was: {task}"
        );
        assert_eq!(
            (&task["result"][name], &task["attempt"]),
            (&json!(STEPS), &json!(2))
        );
        let attempts = node
            .all(&format!(
                "/api/tasks/{}/attempts",
                task["taskId"].as_str().unwrap()
            ))
            .await;
        assert_eq!(attempts.len(), 2, "{attempts:?}");
    }
    the_rest_is_there_once(&node, &output).await;
    let brood = node
        .until_status(&work.brood, "COMPLETED_WITH_ERRORS")
        .await;
    assert_eq!(
        brood["result"],
        json!({ "completed": CHILDREN - FAILING, "failed": FAILING })
    );
    assert_eq!(
        node.all(&format!("/api/tasks/{}/children", work.brood))
            .await
            .len(),
        CHILDREN,
        "no child is there twice"
    );
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
        "no task is there twice"
    );
    let completed = after
        .iter()
        .filter(|task| task["status"] == "COMPLETED")
        .count();
    assert_eq!(
        completed,
        after.len() - 1 - FAILING,
        "all but the brood and the children that fail: {after:?}"
    );
    for ended in before.iter().filter(|task| task["finishedAt"].is_string()) {
        let now = after
            .iter()
            .find(|task| task["taskId"] == ended["taskId"])
            .unwrap();
        assert_eq!(now, ended, "what had ended was not touched again");
    }
}

/// A single node keeps output in memory: what was written before the kill is gone, and the rest is there once.
async fn the_rest_is_there_once(node: &Running, output: &Value) {
    let (id, resumed) = (
        output["taskId"].as_str().unwrap(),
        output["result"]["resumedFrom"].as_u64().unwrap(),
    );
    let told = node
        .follow(format!("/api/tasks/{id}/stream"))
        .await
        .until("end")
        .await;
    let text: String = told
        .iter()
        .filter_map(|event| event.data["text"].as_str())
        .collect();
    let wanted: String = (resumed + 1..=STEPS)
        .map(|chunk| format!("chunk {chunk}\n"))
        .collect();
    assert_eq!(text, wanted);
}
