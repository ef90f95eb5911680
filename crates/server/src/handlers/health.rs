//! Whether the process lives, whether it can work, and what it offers.

use std::sync::Arc;
use std::time::Duration;

use axum::{body::Body, extract::State, http::StatusCode, response::Response};
use longhaul_api::Health;
use longhaul_domain::StoreError;

use crate::{api::Api, openapi::Doc, problem::ApiError, reply};

/// A store that takes longer to tell the time is not ready for more.
const STORE_ANSWERS: Duration = Duration::from_secs(2);

fn health(missing: Vec<String>) -> Response {
    let status = if missing.is_empty() { "ok" } else { "degraded" };
    reply::ok(&Health {
        status: status.to_owned(),
        missing,
    })
}

pub(crate) fn live_doc() -> Doc {
    Doc::new("healthz", "Whether the process lives").answer::<Health>(200, "It does")
}

pub(crate) async fn live() -> Response {
    health(Vec::new())
}

pub(crate) fn ready_doc() -> Doc {
    Doc::new(
        "readyz",
        "Whether the process can reach its store and takes work",
    )
    .answer::<Health>(
        200,
        "It can; without its broker or Redis it is degraded, and works",
    )
    .problems(&[503])
}

pub(crate) async fn ready(State(api): State<Arc<Api>>) -> Result<Response, ApiError> {
    if api.closing.is_cancelled() || api.engine.is_draining() {
        return Err(ApiError::Draining);
    }
    let silent = || StoreError::Unavailable("it does not answer in time".to_owned());
    tokio::time::timeout(STORE_ANSWERS, api.engine.store.now())
        .await
        .unwrap_or_else(|_| Err(silent()))?;
    // Names and no reasons: anybody may ask.
    Ok(health(
        api.engine
            .missing()
            .into_iter()
            .map(str::to_owned)
            .collect(),
    ))
}

pub(crate) fn openapi_doc() -> Doc {
    Doc::new("openapi", "This document").answer::<serde_json::Value>(200, "OpenAPI 3.1")
}

pub(crate) async fn openapi(State(api): State<Arc<Api>>) -> Response {
    reply::with_body(StatusCode::OK, Body::from(api.document.clone()))
}
