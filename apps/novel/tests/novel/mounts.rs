//! The application's routes have the same protection as Longhaul's own.

use libtest_mimic::Trial;
use longhaul::{Longhaul, server::route_table};

use crate::{
    fresh::{Backend, FreshDatabase},
    trial,
    world::World,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "mount::reading_and_writing_need_their_scopes",
            reading_and_writing_need_their_scopes,
        ),
        trial(
            "mount::missing_paths_answer_as_in_longhaul",
            missing_paths_answer_as_in_longhaul,
        ),
        trial(
            "mount::requests_of_other_sites_are_refused",
            requests_of_other_sites_are_refused,
        ),
        trial(
            "mount::a_body_without_a_length_is_bounded",
            a_body_without_a_length_is_bounded,
        ),
        trial(
            "mount::a_path_of_longhaul_cannot_be_taken",
            a_path_of_longhaul_cannot_be_taken,
        ),
        trial(
            "mount::stopping_a_client_does_not_stop_longhaul",
            stopping_a_client_does_not_stop_longhaul,
        ),
    ]
}

async fn world() -> World {
    World::start(FreshDatabase::make(Backend::Sqlite).await).await
}

async fn reading_and_writing_need_their_scopes() {
    let world = world().await;
    let novels = "/novel/api/novels";
    let sample = "/novel/api/novels/sample";

    let anonymous = reqwest::get(format!("{}{novels}", world.base))
        .await
        .unwrap();
    assert_eq!(anonymous.status(), 401);
    world
        .get(novels)
        .header("x-user-scopes", "tasks:write")
        .problem(403, "forbidden")
        .await;
    world
        .post(sample)
        .header("x-user-scopes", "tasks:read")
        .problem(403, "forbidden")
        .await;

    world
        .get(novels)
        .header("x-user-scopes", "tasks:read")
        .expect(200)
        .await;
    world
        .post(sample)
        .header("x-user-scopes", "tasks:write")
        .expect(202)
        .await;

    world.stop().await;
}

async fn missing_paths_answer_as_in_longhaul() {
    let world = world().await;
    world
        .get("/novel/api/poems")
        .problem(404, "no_such_path")
        .await;
    world.get("/novel").problem(404, "no_such_path").await;
    world
        .call(reqwest::Method::PUT, "/novel/api/novels")
        .problem(405, "method_not_allowed")
        .await;

    let anonymous = reqwest::get(format!("{}/novel/api/poems", world.base))
        .await
        .unwrap();
    assert_eq!(
        anonymous.status(),
        401,
        "an anonymous caller does not learn which paths exist"
    );
    world.stop().await;
}

async fn requests_of_other_sites_are_refused() {
    let world = world().await;
    let sample = world
        .post("/novel/api/novels/sample")
        .header("origin", "http://evil.example");
    sample.problem(403, "cross_site").await;
    world.stop().await;
}

async fn a_body_without_a_length_is_bounded() {
    let world = world().await;
    let chunks =
        futures::stream::iter((0..40).map(|_| Ok::<_, std::io::Error>(vec![b'a'; 32 * 1024])));
    let request = reqwest::Client::new().post(format!("{}/novel/api/novels", world.base));
    let request = request
        .header("x-user-id", "u-1")
        .header("content-type", "text/plain");

    let answer = request
        .body(reqwest::Body::wrap_stream(chunks))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 413);
    world.stop().await;
}

async fn a_path_of_longhaul_cannot_be_taken() {
    let firsts = route_table()
        .into_iter()
        .filter_map(|route| route.path.split('/').nth(1).filter(|s| !s.is_empty()));
    for first in firsts.collect::<std::collections::BTreeSet<_>>() {
        let database = FreshDatabase::make(Backend::Sqlite).await;
        let builder = Longhaul::open(&database.url).await.unwrap();
        let mounted = builder
            .mount(&format!("/{first}"), |_| axum::Router::new())
            .start()
            .await;
        assert!(
            mounted.unwrap_err().to_string().contains("Longhaul's own"),
            "{first}"
        );
    }

    let database = FreshDatabase::make(Backend::Sqlite).await;
    let builder = Longhaul::open(&database.url).await.unwrap();
    let twice = builder
        .mount("/a", |_| axum::Router::new())
        .mount("/a", |_| axum::Router::new())
        .start()
        .await;
    assert!(twice.unwrap_err().to_string().contains("used twice"));
}

async fn stopping_a_client_does_not_stop_longhaul() {
    let world = world().await;
    world.longhaul.client().stop().await;
    world.import("One scene.").await;
    world.stop().await;
}
