//! Batches of summaries and of texts, in both styles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libtest_mimic::Trial;
use longhaul::Status;
use serde_json::{Value, json};

use crate::{
    fresh::{Backend, FreshDatabase},
    on,
    upstream::{Answer, Upstream},
    world::{World, summaries},
};

const TALE: &str = "# One\nThe first scene.\n***\nThe second scene.\n# Two\nThe third scene.";

pub(crate) fn trials(backend: Backend) -> Vec<Trial> {
    vec![
        on(
            backend,
            "batch::summaries_are_written_in_both_styles",
            summaries_are_written_in_both_styles,
        ),
        on(
            backend,
            "batch::scenes_are_written_in_both_styles",
            scenes_are_written_in_both_styles,
        ),
        on(
            backend,
            "batch::one_scene_is_written_from_a_summary",
            one_scene_is_written_from_a_summary,
        ),
        on(
            backend,
            "batch::one_refused_scene_does_not_affect_the_others",
            one_refused_scene,
        ),
        on(
            backend,
            "batch::a_loop_leaves_out_a_refused_scene",
            a_loop_leaves_out_a_refused_scene,
        ),
        on(
            backend,
            "batch::missing_scenes_are_refused",
            missing_scenes_are_refused,
        ),
    ]
}

async fn summaries_are_written_in_both_styles(database: FreshDatabase) {
    let world = World::start(database).await;
    let novel = world.import(TALE).await;
    let path = format!("/novel/api/novels/{novel}/summaries");

    for style in ["children", "loop"] {
        let answer = world
            .post(&path)
            .json(&json!({ "style": style }))
            .expect(202)
            .await;

        let result = world.completed(&answer["taskId"]).await;
        assert_eq!(
            (&result["done"], &result["failed"]),
            (&3.into(), &0.into()),
            "{style}"
        );

        let task = world.ended(&answer["taskId"]).await;
        assert_eq!(task.children.total, if style == "children" { 3 } else { 0 });

        let scene = world
            .get(&format!("/novel/api/novels/{novel}/scenes/3"))
            .expect(200)
            .await;
        assert_eq!(scene["summaryTask"] == answer["taskId"], style == "loop");
    }

    for style in ["children", "loop"] {
        let some = world
            .post(&path)
            .json(&json!({ "scenes": [2, 1, 2], "style": style }))
            .expect(202)
            .await;
        assert_eq!(
            world.completed(&some["taskId"]).await["done"],
            2,
            "a scene that is named twice is written once"
        );
    }

    world.stop().await;
}

async fn scenes_are_written_in_both_styles(database: FreshDatabase) {
    let world = World::start(database).await;
    let novel = world.import(TALE).await;
    let path = format!("/novel/api/novels/{novel}");

    for (style, first) in [("children", 4), ("loop", 6)] {
        let summaries = ["A boat comes.", "A boat leaves."];
        let body = json!({ "chapter": 2, "summaries": summaries, "style": style });
        let answer = world
            .post(&format!("{path}/scenes"))
            .json(&body)
            .expect(202)
            .await;
        assert_eq!(answer["scenes"], json!([first, first + 1]));
        assert_eq!(
            world.completed(&answer["taskId"]).await["done"],
            2,
            "{style}"
        );

        let scene = world
            .get(&format!("{path}/scenes/{first}"))
            .expect(200)
            .await;
        assert!(
            scene["text"].as_str().unwrap().contains("A boat comes."),
            "{scene}"
        );
        assert_eq!(scene["chapter"], 2);
    }

    let nothing = world.post(&format!("{path}/texts")).expect(202).await;
    assert_eq!(
        world.completed(&nothing["taskId"]).await["done"],
        0,
        "every scene has a text"
    );

    let first = world.get(&format!("{path}/scenes/1")).expect(200).await;
    assert_eq!(
        first["text"], "The first scene.",
        "an imported text is not overwritten unless it is named"
    );
    world.stop().await;
}

async fn one_scene_is_written_from_a_summary(database: FreshDatabase) {
    let world = World::start(database).await;
    let novel = world.import(TALE).await;
    let path = format!("/novel/api/novels/{novel}/scenes");
    let body = json!({ "chapter": 1, "summaries": ["A letter is found."] });
    let answer = world.post(&path).json(&body).expect(202).await;

    let result = world.completed(&answer["taskId"]).await;
    assert_eq!(
        (
            &result["scene"],
            world.ended(&answer["taskId"]).await.task_type.as_str()
        ),
        (&4.into(), "generate_scene")
    );

    let again = world.post(&format!("{path}/1/text")).expect(202).await;
    world.completed(&again["taskId"]).await;
    let scene = world.get(&format!("{path}/1")).expect(200).await;
    assert_eq!(scene["textTask"], again["taskId"]);

    let missing = json!({ "chapter": 9, "summaries": ["Nowhere."] });
    assert_eq!(
        world
            .post(&path)
            .json(&missing)
            .problem(422, "invalid_field")
            .await["field"],
        "chapter"
    );

    let empty = json!({ "chapter": 1, "summaries": ["Fine.", " "] });
    assert_eq!(
        world
            .post(&path)
            .json(&empty)
            .problem(422, "invalid_field")
            .await["field"],
        "summaries[1]"
    );

    assert_eq!(
        world.novel(&novel).await["chapters"][0]["scenes"]
            .as_array()
            .unwrap()
            .len(),
        3
    );

    world.stop().await;
}

/// A provider that refuses the second scene while the flag is set.
async fn refusing_second_scene() -> (Upstream, Arc<AtomicBool>) {
    let refuses = Arc::new(AtomicBool::new(true));
    let is_refusing = Arc::clone(&refuses);
    let upstream = Upstream::start(move |request| {
        if request.prompt().contains("second") && is_refusing.load(Ordering::SeqCst) {
            Answer::Status(
                400,
                "",
                "{\"error\":{\"message\":\"not this one\"}}".to_owned(),
            )
        } else {
            Answer::Text("In short.")
        }
    });

    (upstream.await, refuses)
}

async fn one_refused_scene(database: FreshDatabase) {
    let (upstream, refuses) = refusing_second_scene().await;
    let world = World::start_with(database, upstream.provider()).await;
    let answer = world.post("/novel/api/novels").text(TALE).expect(202).await;
    let task = &answer["taskId"];
    let novel = answer["novelId"].as_str().unwrap();

    let ended = world.ended(task).await;
    assert_eq!(ended.status, Status::CompletedWithErrors);
    let result: Value = serde_json::from_str(ended.result.unwrap().as_str()).unwrap();
    assert_eq!(
        (&result["summaries"]["done"], &result["summaries"]["failed"]),
        (&2.into(), &1.into())
    );

    let reason = result["summaries"]["failures"][0].as_str().unwrap();
    assert!(
        reason.starts_with("scene 2:") && reason.contains("not this one"),
        "{reason}"
    );
    assert_eq!(
        summaries(&world.novel(novel).await)
            .iter()
            .flatten()
            .count(),
        2
    );

    refuses.store(false, Ordering::SeqCst);
    let before = upstream.calls();
    let id = task.as_str().unwrap();
    let retry = json!({ "scope": "failedChildren" });
    world
        .post(&format!("/api/tasks/{id}/retry"))
        .json(&retry)
        .expect(202)
        .await;

    let again = world.completed(task).await;
    assert_eq!(
        (&again["summaries"]["done"], &again["summaries"]["failed"]),
        (&3.into(), &0.into())
    );
    assert_eq!(
        upstream.calls(),
        before + 1,
        "only the failed scene was requested again"
    );

    assert_eq!(
        summaries(&world.novel(novel).await)
            .iter()
            .flatten()
            .count(),
        3
    );

    world.stop().await;
}

async fn a_loop_leaves_out_a_refused_scene(database: FreshDatabase) {
    let (upstream, _) = refusing_second_scene().await;
    let world = World::start_with(database, upstream.provider()).await;
    let answer = world.post("/novel/api/novels").text(TALE).expect(202).await;
    world.ended(&answer["taskId"]).await;
    let path = format!(
        "/novel/api/novels/{}/summaries",
        answer["novelId"].as_str().unwrap()
    );
    let batch = world
        .post(&path)
        .json(&json!({ "style": "loop" }))
        .expect(202)
        .await;

    let result = world.completed(&batch["taskId"]).await;
    assert_eq!((&result["done"], &result["failed"]), (&2.into(), &1.into()));
    assert_eq!(
        result["usage"],
        json!({ "promptTokens": 14, "completionTokens": 6 })
    );

    let only = world
        .post(&path)
        .json(&json!({ "style": "loop", "scenes": [2] }))
        .expect(202)
        .await;
    assert_eq!(
        world.ended(&only["taskId"]).await.status,
        Status::Failed,
        "no scene was written"
    );
    world.stop().await;
}

async fn missing_scenes_are_refused(database: FreshDatabase) {
    let world = World::start(database).await;
    let novel = world.import(TALE).await;
    let path = format!("/novel/api/novels/{novel}");

    for batch in ["summaries", "texts"] {
        let answer = world
            .post(&format!("{path}/{batch}"))
            .json(&json!({ "scenes": [1, 7] }));
        assert_eq!(
            answer.problem(422, "invalid_field").await["field"],
            "scenes"
        );
        world
            .post(&format!("{path}/{batch}"))
            .json(&json!({ "scenes": [] }))
            .problem(422, "invalid_field")
            .await;

        world
            .post(&format!("{path}/{batch}"))
            .json(&json!({ "style": "quick" }))
            .problem(422, "invalid_field")
            .await;
    }

    world
        .post(&format!("{path}/scenes/7/summary"))
        .problem(404, "not_found")
        .await;
    world
        .post(&format!("{path}/scenes/x/summary"))
        .problem(404, "not_found")
        .await;
    world
        .post("/novel/api/novels/nothing/summaries")
        .problem(404, "not_found")
        .await;

    world.stop().await;
}
