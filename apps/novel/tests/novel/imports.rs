//! Importing a novel: rows and task together, once, and a summary for every scene.

use libtest_mimic::Trial;
use longhaul::Status;
use serde_json::json;

use crate::{
    fresh::{Backend, FreshDatabase},
    on,
    world::{World, summaries},
};

pub(crate) fn trials(backend: Backend) -> Vec<Trial> {
    vec![
        on(
            backend,
            "import::every_scene_of_the_sample_gets_a_summary",
            every_scene_gets_a_summary,
        ),
        on(
            backend,
            "import::the_same_key_is_the_same_novel",
            the_same_key_is_the_same_novel,
        ),
        on(
            backend,
            "import::rows_that_cannot_be_written_leave_no_task",
            rows_that_cannot_be_written_leave_no_task,
        ),
        on(
            backend,
            "import::an_invalid_novel_is_refused",
            an_invalid_novel_is_refused,
        ),
        on(
            backend,
            "import::the_text_of_a_summary_is_the_output_of_its_task",
            the_text_is_the_output,
        ),
        on(
            backend,
            "import::novels_are_listed_page_by_page",
            novels_are_listed_page_by_page,
        ),
        on(
            backend,
            "import::a_deleted_novel_is_gone",
            a_deleted_novel_is_gone,
        ),
    ]
}

async fn every_scene_gets_a_summary(database: FreshDatabase) {
    let world = World::start(database).await;
    let answer = world.post("/novel/api/novels/sample").send().await;
    let location = answer.headers()["location"].to_str().unwrap().to_owned();
    assert_eq!(answer.status(), 202);

    let answer: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(
        location,
        format!("/api/tasks/{}", answer["taskId"].as_str().unwrap())
    );

    let result = world.completed(&answer["taskId"]).await;
    assert_eq!(
        (&result["chapters"], &result["scenes"]),
        (&4.into(), &11.into())
    );
    assert_eq!(
        (&result["summaries"]["done"], &result["summaries"]["failed"]),
        (&11.into(), &0.into())
    );
    assert!(
        result["summaries"]["usage"]["completionTokens"]
            .as_u64()
            .unwrap()
            > 100
    );

    let novel = world.novel(answer["novelId"].as_str().unwrap()).await;
    assert_eq!(novel["title"], "The Lamp at Harrow Point");
    assert_eq!(novel["chapters"][1]["title"], "What the Board Wanted");
    let summaries = summaries(&novel);
    assert_eq!(summaries.len(), 11);
    assert!(summaries.iter().all(Option::is_some));
    assert!(
        summaries[0]
            .as_ref()
            .unwrap()
            .contains("The letter came with the bread")
    );

    world.stop().await;
}

async fn the_same_key_is_the_same_novel(database: FreshDatabase) {
    let world = World::start(database).await;
    let import = || {
        world
            .post("/novel/api/novels/sample")
            .header("idempotency-key", "once")
            .expect(202)
    };

    let (one, two, three) = tokio::join!(import(), import(), import());
    assert_eq!(one, two);
    assert_eq!(one, three);
    assert_eq!(one, import().await);
    let other = world
        .post("/novel/api/novels")
        .header("idempotency-key", "once")
        .text("Another text.");

    other.problem(422, "idempotency_key_reused").await;
    world.completed(&one["taskId"]).await;
    let novels = world.get("/novel/api/novels").expect(200).await;
    assert_eq!(novels["items"].as_array().unwrap().len(), 1);

    let tasks = world
        .get("/api/tasks?taskType=import_novel")
        .expect(200)
        .await;
    assert_eq!(
        tasks["items"].as_array().unwrap().len(),
        1,
        "the slower requests have left no task"
    );
    world.stop().await;
}

async fn rows_that_cannot_be_written_leave_no_task(database: FreshDatabase) {
    let world = World::start(database).await;
    world
        .database
        .execute("ALTER TABLE novels RENAME TO gone")
        .await;

    let problem = world
        .post("/novel/api/novels")
        .text("One scene.")
        .problem(500, "internal")
        .await;
    assert!(
        !problem.to_string().contains("novels\""),
        "the answer shows no internals: {problem}"
    );

    let tasks = world.get("/api/tasks").expect(200).await;
    assert_eq!(
        tasks["items"].as_array().unwrap().len(),
        0,
        "the task was rolled back with the row: {tasks}"
    );
    world
        .database
        .execute("ALTER TABLE gone RENAME TO novels")
        .await;

    world.import("One scene.").await;
    world.stop().await;
}

async fn an_invalid_novel_is_refused(database: FreshDatabase) {
    let world = World::start(database).await;
    let novels = "/novel/api/novels";
    assert_eq!(
        world
            .post(novels)
            .text(" \n* * *\n")
            .problem(422, "invalid_field")
            .await["field"],
        "text"
    );

    let many = "a\n***\n".repeat(2_001);
    let problem = world
        .post(novels)
        .text(&many)
        .problem(422, "invalid_field")
        .await;
    assert_eq!(
        (&problem["field"], &problem["allowed"]),
        (&"text".into(), &"1 to 2000 scenes".into())
    );

    let long = json!({ "title": "t".repeat(201), "text": "One." });
    assert_eq!(
        world
            .post(novels)
            .json(&long)
            .problem(422, "invalid_field")
            .await["field"],
        "title"
    );

    world
        .post(novels)
        .json(&json!({ "title": "t", "text": "a\u{0}b" }))
        .problem(422, "invalid_field")
        .await;
    world
        .post(novels)
        .json(&json!({ "title": "t" }))
        .problem(422, "invalid_field")
        .await;

    world
        .post(novels)
        .header("content-type", "text/html")
        .problem(415, "not_text")
        .await;
    world
        .post(novels)
        .text(&"a".repeat(1024 * 1024 + 1))
        .problem(413, "body_too_large")
        .await;

    world
        .post(novels)
        .header("idempotency-key", "")
        .text("One.")
        .problem(422, "invalid_field")
        .await;

    for query in ["size=many", "size=0", "size=101", "colour=red"] {
        world
            .get(&format!("/novel/api/novels?{query}"))
            .problem(400, "invalid_filter")
            .await;
    }

    assert_eq!(world.get(novels).expect(200).await["items"], json!([]));
    world.stop().await;
}

async fn the_text_is_the_output(database: FreshDatabase) {
    let world = World::start(database).await;
    let novel = world
        .import("The lamp was lit, and nobody knew by whom.")
        .await;
    let path = format!("/novel/api/novels/{novel}/scenes/1");
    let answer = world.post(&format!("{path}/summary")).expect(202).await;
    let result = world.completed(&answer["taskId"]).await;

    let scene = world.get(&path).expect(200).await;
    assert_eq!(
        (&scene["summaryTask"], &result["model"]),
        (&answer["taskId"], &"offline/steady".into())
    );
    let chunks = world.output(&answer["taskId"]).await;
    assert!(chunks.len() > 5, "a word at a time: {chunks:?}");
    assert_eq!(
        chunks.concat(),
        scene["summary"].as_str().unwrap(),
        "the whole summary and nothing else"
    );

    world.stop().await;
}

async fn novels_are_listed_page_by_page(database: FreshDatabase) {
    let world = World::start(database).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.insert(0, world.import("One scene.").await);
    }

    let first = world.get("/novel/api/novels?size=2").expect(200).await;
    let next = first["next"].as_str().unwrap();
    let second = world
        .get(&format!("/novel/api/novels?size=2&before={next}"))
        .expect(200)
        .await;
    let listed = [&first, &second]
        .map(|page| page["items"].as_array().unwrap().clone())
        .concat();

    let listed: Vec<&str> = listed
        .iter()
        .map(|card| card["novelId"].as_str().unwrap())
        .collect();
    assert_eq!(listed, ids);
    assert!(second["next"].is_null());
    assert_eq!(
        (
            &first["items"][0]["scenes"],
            &first["items"][0]["summaries"]
        ),
        (&1.into(), &1.into())
    );

    world.stop().await;
}

async fn a_deleted_novel_is_gone(database: FreshDatabase) {
    let world = World::start(database).await;
    let novel = world.import("One scene.").await;
    let path = format!("/novel/api/novels/{novel}");
    world.call(reqwest::Method::DELETE, &path).expect(204).await;
    world
        .call(reqwest::Method::DELETE, &path)
        .problem(404, "not_found")
        .await;
    world.get(&path).problem(404, "not_found").await;

    let task =
        json!({ "taskType": "generate_summary", "parameters": { "novelId": novel, "scene": 1 } });
    let late = world.post("/api/tasks").json(&task).expect(202).await;
    let ended = world.ended(&late["taskId"]).await;
    assert_eq!(ended.status, Status::Failed);
    assert!(ended.error.unwrap().message.contains("there is no scene 1"));
    world.stop().await;
}
