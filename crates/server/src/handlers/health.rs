//! Liveness, readiness, and the OpenAPI document.

use std::sync::Arc;

use axum::{body::Body, extract::State, http::StatusCode, response::Response};
use longhaul_api::Health;

use crate::{api::Api, openapi::Doc, problem::ApiError, reply};

fn health(missing: Vec<String>) -> Response {
    let status = if missing.is_empty() { "ok" } else { "degraded" };
    reply::ok(&Health {
        status: status.to_owned(),
        missing,
    })
}

pub(crate) fn live_doc() -> Doc {
    Doc::new("healthz", "Whether the process is alive")
        .answer::<Health>(200, "The process is alive")
}

pub(crate) async fn live() -> Response {
    health(Vec::new())
}

pub(crate) fn ready_doc() -> Doc {
    Doc::new(
        "readyz",
        "Whether the process can read and write its store and accepts work",
    )
    .answer::<Health>(
        200,
        "The node takes work; without its broker or Redis it is `degraded`",
    )
    .problems(&[503])
}

pub(crate) async fn ready(State(api): State<Arc<Api>>) -> Result<Response, ApiError> {
    if api.closing.is_cancelled() || api.engine.is_draining() {
        return Err(ApiError::Draining);
    }

    api.engine.check_store().await?;

    // The route is public: it names what is missing and gives no reasons.
    let missing = api.engine.missing().into_iter();
    Ok(health(missing.map(str::to_owned).collect()))
}

pub(crate) fn openapi_doc() -> Doc {
    Doc::new("openapi", "This document").answer::<serde_json::Value>(200, "OpenAPI 3.1")
}

pub(crate) async fn openapi(State(api): State<Arc<Api>>) -> Response {
    reply::with_body(StatusCode::OK, Body::from(api.document.clone()))
}
