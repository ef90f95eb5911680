//! A caller cannot see or change the novels of other users.

use libtest_mimic::Trial;
use longhaul::Status;
use serde_json::json;

use crate::{
    fresh::{Backend, FreshDatabase},
    on,
    world::World,
};

pub(crate) fn trials(backend: Backend) -> Vec<Trial> {
    vec![
        on(
            backend,
            "owner::no_route_shows_a_novel_of_another_user",
            no_route_shows_a_novel_of_another_user,
        ),
        on(
            backend,
            "owner::a_task_of_another_user_cannot_change_a_novel",
            a_task_of_another_user_cannot_change_a_novel,
        ),
    ]
}

async fn no_route_shows_a_novel_of_another_user(database: FreshDatabase) {
    let world = World::start(database).await;
    let novel = world.import("One scene.").await;
    let path = format!("/novel/api/novels/{novel}");

    for own in ["", "/scenes/1"] {
        let problem = world
            .get(&format!("{path}{own}"))
            .user("u-2")
            .problem(404, "not_found")
            .await;

        let unknown = format!("/novel/api/novels/{}{own}", uuid::Uuid::nil());
        assert_eq!(
            problem,
            world.get(&unknown).problem(404, "not_found").await,
            "the answer is the same as for an unknown novel"
        );
    }

    for own in [
        "/scenes/1/summary",
        "/scenes/1/text",
        "/summaries",
        "/texts",
    ] {
        world
            .post(&format!("{path}{own}"))
            .user("u-2")
            .problem(404, "not_found")
            .await;
    }

    let scene = json!({ "chapter": 1, "summaries": ["Mine now."] });
    world
        .post(&format!("{path}/scenes"))
        .user("u-2")
        .json(&scene)
        .problem(404, "not_found")
        .await;

    world
        .call(reqwest::Method::DELETE, &path)
        .user("u-2")
        .problem(404, "not_found")
        .await;
    assert_eq!(
        world.get("/novel/api/novels").user("u-2").expect(200).await["items"],
        json!([])
    );

    assert_eq!(
        world.get("/api/tasks").user("u-2").expect(200).await["items"],
        json!([])
    );
    assert_eq!(
        world.novel(&novel).await["chapters"][0]["scenes"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    world.stop().await;
}

async fn a_task_of_another_user_cannot_change_a_novel(database: FreshDatabase) {
    let world = World::start(database).await;
    let novel = world.import("One scene.").await;
    let before = world.novel(&novel).await;
    let one = json!({ "novelId": novel, "scene": 1 });

    let tasks = [
        ("generate_summary", one.clone()),
        ("generate_scene", one),
        (
            "batch_generate_summary",
            json!({ "novelId": novel, "style": "loop" }),
        ),
        (
            "batch_generate_scene",
            json!({ "novelId": novel, "scenes": [1] }),
        ),
        ("import_novel", json!({ "novelId": novel })),
    ];

    for (task_type, parameters) in tasks {
        let task = json!({ "taskType": task_type, "parameters": parameters });
        let answer = world
            .post("/api/tasks")
            .user("u-2")
            .json(&task)
            .expect(202)
            .await;

        let task = world.ended(&answer["taskId"]).await;
        assert_eq!(task.status, Status::Failed, "{task_type}");
        assert!(
            task.error.unwrap().message.starts_with("there is no "),
            "{task_type}"
        );
    }

    assert_eq!(world.novel(&novel).await, before);
    world.stop().await;
}
