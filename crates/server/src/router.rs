//! The table of routes. Only these routes are served, and every one has a policy.

use std::sync::Arc;

use axum::{Router, middleware};

use crate::{
    api::Api,
    guard,
    handlers::{
        artifacts, bulk, change, events, health, lists, metrics, nodes, pages, queues, stats,
        stream, submit, tasks, types, why, ws,
    },
    identity::Scope::{Operate, Read, Write},
    observe,
    problem::ApiError,
    reply,
    route::{
        Policy::{self, Needs, Public},
        Route, Verb,
    },
};

#[expect(clippy::too_many_lines, reason = "one table of routes")]
pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::post("/api/tasks", Needs(Write), submit::one, submit::one_doc),
        Route::post(
            "/api/tasks/batch",
            Needs(Write),
            submit::batch,
            submit::batch_doc,
        ),
        Route::get("/api/tasks", Needs(Read), lists::tasks, lists::tasks_doc),
        Route::get(
            "/api/tasks/dead-letter",
            Needs(Read),
            lists::dead_letters,
            lists::dead_letters_doc,
        ),
        Route::post(
            "/api/tasks/bulk/cancel",
            Needs(Write),
            bulk::cancel,
            bulk::cancel_doc,
        ),
        Route::post(
            "/api/tasks/bulk/retry",
            Needs(Write),
            bulk::retry,
            bulk::retry_doc,
        ),
        Route::post(
            "/api/tasks/bulk/reschedule",
            Needs(Write),
            bulk::reschedule,
            bulk::reschedule_doc,
        ),
        Route::get("/api/tasks/{id}", Needs(Read), tasks::get, tasks::get_doc),
        Route::patch(
            "/api/tasks/{id}",
            Needs(Write),
            change::patch,
            change::patch_doc,
        ),
        Route::delete(
            "/api/tasks/{id}",
            Needs(Write),
            change::cancel,
            change::cancel_doc,
        ),
        Route::post(
            "/api/tasks/{id}/retry",
            Needs(Write),
            change::retry,
            change::retry_doc,
        ),
        Route::get(
            "/api/tasks/{id}/children",
            Needs(Read),
            lists::children,
            lists::children_doc,
        ),
        Route::get(
            "/api/tasks/{id}/attempts",
            Needs(Read),
            tasks::attempts,
            tasks::attempts_doc,
        ),
        Route::get(
            "/api/tasks/{id}/logs",
            Needs(Read),
            tasks::logs,
            tasks::logs_doc,
        ),
        Route::get("/api/tasks/{id}/why", Needs(Read), why::get, why::get_doc),
        Route::get(
            "/api/tasks/{id}/events",
            Needs(Read),
            events::of_task,
            events::of_task_doc,
        ),
        Route::get(
            "/api/tasks/{id}/stream",
            Needs(Read),
            stream::of_task,
            stream::of_task_doc,
        ),
        Route::get(
            "/api/tasks/{id}/artifacts",
            Needs(Read),
            artifacts::list,
            artifacts::list_doc,
        ),
        // The signed URL is the permission.
        Route::get(
            "/api/artifacts/{id}",
            Public,
            artifacts::download,
            artifacts::download_doc,
        ),
        Route::get(
            "/api/events",
            Needs(Read),
            events::of_owner,
            events::of_owner_doc,
        ),
        Route::get("/api/ws", Needs(Read), ws::connect, ws::connect_doc),
        Route::get("/api/types", Needs(Read), types::list, types::list_doc),
        Route::get(
            "/api/queues",
            Needs(Operate),
            queues::list,
            queues::list_doc,
        ),
        Route::post(
            "/api/queues/{name}/pause",
            Needs(Operate),
            queues::pause,
            queues::pause_doc,
        ),
        Route::post(
            "/api/queues/{name}/resume",
            Needs(Operate),
            queues::resume,
            queues::resume_doc,
        ),
        Route::get("/api/nodes", Needs(Operate), nodes::list, nodes::list_doc),
        Route::get("/api/stats", Needs(Operate), stats::get, stats::get_doc),
        Route::get(
            "/api/openapi.json",
            Public,
            health::openapi,
            health::openapi_doc,
        ),
        Route::get("/", Public, pages::status, pages::status_doc),
        Route::get("/docs", Public, pages::docs, pages::docs_doc),
        Route::get("/pages/{file}", Public, pages::file, pages::file_doc),
        Route::get("/healthz", Public, health::live, health::live_doc),
        Route::get("/readyz", Public, health::ready, health::ready_doc),
        Route::get("/metrics", Needs(Operate), metrics::get, metrics::get_doc),
    ]
}

/// The public description of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteInfo {
    pub verb: Verb,
    pub path: &'static str,
    pub policy: Policy,
}

/// All routes, for tests and documents.
pub fn route_table() -> Vec<RouteInfo> {
    routes()
        .iter()
        .map(|route| RouteInfo {
            verb: route.verb,
            path: route.path,
            policy: route.policy,
        })
        .collect()
}

/// The router that serves the table.
pub(crate) fn router(api: &Arc<Api>) -> Router {
    let mut router = Router::new();
    for Route {
        path,
        policy,
        handler,
        ..
    } in routes()
    {
        let guarded = middleware::from_fn_with_state((Arc::clone(api), policy), guard::check);
        router = router.route(path, handler.route_layer(guarded));
    }

    router
        .fallback(async || ApiError::NoRoute)
        .method_not_allowed_fallback(async || ApiError::NoMethod)
        .layer(middleware::map_response(reply::no_sniff))
        .layer(middleware::from_fn_with_state(
            Arc::clone(api),
            observe::observe,
        ))
        .with_state(Arc::clone(api))
}
