//! JSON responses.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use crate::problem::ApiError;

/// A response with a body. Caches must not store it: it changes, and it is for its caller alone.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => with_body(status, text.into()),
        Err(error) => {
            tracing::error!(%error, "response could not be serialized; answering 500");
            ApiError::Unwritable.into_response()
        }
    }
}

pub(crate) fn with_body(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));

    response
}

/// Tells browsers to trust the `Content-Type` of every response.
pub(crate) async fn no_sniff(mut response: Response) -> Response {
    response.headers_mut().insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// 202 with a body and a `Location`.
pub fn accepted(location: &str, value: &impl Serialize) -> Response {
    let mut response = json(StatusCode::ACCEPTED, value);
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// 200 with a body.
pub fn ok(value: &impl Serialize) -> Response {
    json(StatusCode::OK, value)
}
