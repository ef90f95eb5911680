//! The metrics of the process and of its store, for scrapers.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use longhaul_engine::metrics::book::Format;

use crate::{api::Api, openapi::Doc, problem::ApiError, reply};

const OPEN_METRICS: &str = "application/openmetrics-text";

pub(crate) fn get_doc() -> Doc {
    Doc::new("metrics", "Metrics, as OpenMetrics text for those who accept it and as plain Prometheus text for others")
        .text("text/plain", "All metrics")
}

pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let accepted = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let (format, kind) = match accepted.into_iter().any(|text| text.contains(OPEN_METRICS)) {
        true => (
            Format::OpenMetrics,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        false => (Format::Plain, "text/plain; version=0.0.4; charset=utf-8"),
    };
    let text = api
        .engine
        .scrape(format)
        .await
        .map_err(|_| ApiError::Unwritable)?;
    let mut response = reply::with_body(StatusCode::OK, Body::from(text));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}
