//! The metrics of the process and its store.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use longhaul_engine::metrics::registry::Format;

use crate::{api::Api, openapi::Doc, problem::ApiError, reply};

const OPEN_METRICS: &str = "application/openmetrics-text";

pub(crate) fn get_doc() -> Doc {
    Doc::new(
        "metrics",
        "Metrics, as OpenMetrics text if the client accepts it, else as Prometheus text",
    )
    .text("text/plain", "All metrics")
}

pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    let (format, content_type) = if accepted.any(|text| text.contains(OPEN_METRICS)) {
        let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        (Format::OpenMetrics, content_type)
    } else {
        (Format::Plain, "text/plain; version=0.0.4; charset=utf-8")
    };

    let text = api.engine.scrape(format).await;
    let text = text.map_err(|_| ApiError::Unwritable)?;
    let mut response = reply::with_body(StatusCode::OK, Body::from(text));
    let content_type = HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    Ok(response)
}
