//! Access to tasks and routes. The matrix is made from the route table, so that it covers every new
//! route.

use libtest_mimic::Trial;
use longhaul::server::{Policy, RouteInfo, route_table};
use serde_json::json;

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{
    client::{Call, Reply},
    server::Server,
};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        a_route_that_needs_a_scope_refuses_callers_without_a_name_or_the_scope,
        each_scope_grants_exactly_its_own_routes,
        a_task_of_another_user_is_not_found,
        an_administrator_reads_and_changes_the_tasks_of_all_users,
        dev_mode_separates_users_without_tokens,
        pages_of_other_sites_are_refused
    ]
}

pub(crate) const MISSING: &str = "01900000-0000-7000-8000-000000000000";

/// A call of this route that would do something if the caller were allowed to.
pub(crate) fn call_of(route: &RouteInfo, id: &str) -> Call {
    let path = route
        .path
        .replace("{id}", id)
        .replace("{name}", "own")
        .replace("{file}", "status.js");
    let call = Call::new(route.verb.as_str(), path);

    match (route.verb.as_str(), route.path) {
        ("POST", "/api/tasks") => call.json(&json!({ "taskType": "sample.echo", "delay": "1d" })),
        ("POST", "/api/tasks/batch") => {
            call.json(&json!({ "tasks": [{ "taskType": "sample.echo", "delay": "1d" }] }))
        }
        ("POST", "/api/tasks/bulk/reschedule") => {
            let mut call = call.json(&json!({ "priority": 9 }));
            call.path += "?status=QUEUED";
            call
        }
        ("POST", "/api/tasks/bulk/cancel" | "/api/tasks/bulk/retry") => {
            let mut call = call;
            call.path += "?status=QUEUED,CANCELLED";
            call
        }
        ("PATCH", _) => call.json(&json!({ "priority": 9 })),
        _ => call,
    }
}

/// Anyone with the signed URL may download a file; see the tests of files.
pub(crate) fn is_signed(route: &RouteInfo) -> bool {
    route.path == "/api/artifacts/{id}"
}

fn routes(is_wanted: impl Fn(&RouteInfo) -> bool) -> Vec<RouteInfo> {
    let wanted: Vec<RouteInfo> = route_table().into_iter().filter(is_wanted).collect();
    assert!(!wanted.is_empty());
    wanted
}

async fn a_route_that_needs_a_scope_refuses_callers_without_a_name_or_the_scope(store: Backend) {
    let server = Server::behind_a_gateway(store).await;
    for route in routes(|route| route.policy != Policy::Public) {
        server
            .send(call_of(&route, MISSING))
            .await
            .problem(401, "unauthenticated");
        let call = call_of(&route, MISSING)
            .user("u-1")
            .header("X-User-Scopes", "nothing");

        server.send(call).await.problem(403, "forbidden");
    }

    for route in routes(|route| route.policy == Policy::Public && !is_signed(route)) {
        assert_eq!(
            server.send(call_of(&route, MISSING)).await.status,
            200,
            "{route:?}"
        );
    }
}

async fn each_scope_grants_exactly_its_own_routes(store: Backend) {
    let server = Server::behind_a_gateway(store).await;
    for route in route_table() {
        let Policy::Needs(needed) = route.policy else {
            continue;
        };
        if route.path.ends_with("/events") || route.path.ends_with("/ws") {
            continue; // A stream that is open does not end; the matrix of owners has it.
        }

        for scope in ["tasks:read", "tasks:write", "operate"] {
            let call = call_of(&route, MISSING)
                .user("u-1")
                .header("X-User-Scopes", scope);
            let status = server.send(call).await.status;
            assert_eq!(
                status == 403,
                scope != needed.as_str(),
                "{route:?} with {scope}: {status}"
            );
        }
    }
}

async fn a_task_of_another_user_is_not_found(store: Backend) {
    let server = Server::behind_a_gateway(store).await;
    let id = server.submit_for_later("u-1").await;
    let before = server
        .send(Call::get(format!("/api/tasks/{id}")).user("u-1"))
        .await
        .expect(200);

    let same = |reply: Reply| (reply.status, reply.text);

    for route in routes(|route| route.path.contains("{id}") && !is_signed(route)) {
        let of_another = server.send(call_of(&route, &id).user("u-2")).await;
        let missing = server.send(call_of(&route, MISSING).user("u-2")).await;
        of_another.clone().problem(404, "task_not_found");
        assert_eq!(same(of_another), same(missing), "{route:?}");
    }
    for route in
        routes(|route| route.path.starts_with("/api/tasks") && !route.path.contains("{id}"))
    {
        let reply = server.send(call_of(&route, &id).user("u-2")).await;
        assert!(
            reply.status < 300 && !reply.text.contains(&id),
            "{route:?}: {}",
            reply.text
        );
    }

    let filtered = server
        .send(Call::get("/api/tasks?userId=u-1").user("u-2"))
        .await
        .expect(200);
    assert_eq!(filtered["items"], json!([]));

    let after = server
        .send(Call::get(format!("/api/tasks/{id}")).user("u-1"))
        .await
        .expect(200);
    assert_eq!(before, after, "no request of another user has changed it");
}

async fn an_administrator_reads_and_changes_the_tasks_of_all_users(store: Backend) {
    let server = Server::behind_a_gateway(store).await;
    let id = server.submit_for_later("u-1").await;
    server.submit_for_later("u-2").await;

    let admin = |call: Call| call.user("boss").header("X-User-Scopes", "admin");
    let all = server
        .send(admin(Call::get("/api/tasks")))
        .await
        .expect(200);
    let one = server
        .send(admin(Call::get("/api/tasks?userId=u-1")))
        .await
        .expect(200);
    assert_eq!(
        (
            all["items"].as_array().unwrap().len(),
            &one["items"][0]["taskId"]
        ),
        (2, &json!(id))
    );

    server
        .send(admin(Call::new("DELETE", format!("/api/tasks/{id}"))))
        .await
        .expect(204);
    server
        .send(admin(Call::get("/api/stats")))
        .await
        .expect(200);
}

async fn dev_mode_separates_users_without_tokens(store: Backend) {
    let server = Server::start(store).await;
    let id = server.submit_for_later("u-1").await;
    server
        .get(format!("/api/tasks/{id}"))
        .await
        .problem(404, "task_not_found");
    server
        .send(Call::get(format!("/api/tasks/{id}")).user("u-1"))
        .await
        .expect(200);

    server
        .send(Call::get("/api/tasks").user(""))
        .await
        .problem(401, "unauthenticated");
}

async fn pages_of_other_sites_are_refused(store: Backend) {
    let server = Server::start(store).await;
    for route in route_table() {
        let call = call_of(&route, MISSING);
        let foreign = call.clone().header("Host", "evil.example");
        server.send(foreign).await.problem(403, "not_local");
        let cross = call.header("Origin", "https://evil.example");
        server.send(cross).await.problem(403, "cross_site");
    }

    let same = format!("http://{}", server.address);
    server
        .send(Call::get("/api/tasks").header("Origin", &same))
        .await
        .expect(200);
}
