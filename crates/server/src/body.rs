//! Request bodies: bounded in size and time, JSON only, and refused with the place or the field that does not fit.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, Request},
    http::{HeaderMap, header},
};
use http_body_util::{BodyExt as _, LengthLimitError};
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::problem::ApiError;

/// One request, in bytes.
pub(crate) const BODY_BYTES: usize = 1024 * 1024;
/// How long a body may take to arrive: 1 MiB at 35 KiB/s.
const BODY_TIME: Duration = Duration::from_secs(30);

/// A body that is read as `T`.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let bytes = receive(request).await?;
        Ok(Self(read(&bytes)?))
    }
}

/// A body that may be absent; then `T` is what it is by default.
#[derive(Debug)]
pub struct OptionalBody<T>(pub T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = bounded(&parts.headers, body).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        check_type(&parts.headers)?;
        Ok(Self(read(&bytes)?))
    }
}

/// A body that is plain text in UTF-8: `Content-Type: text/plain`.
#[derive(Debug)]
pub struct TextBody(pub String);

impl<S: Send + Sync> FromRequest<S> for TextBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        if essence(&parts.headers) != "text/plain" {
            return Err(ApiError::NotTextType);
        }
        let bytes = bounded(&parts.headers, body).await?;
        let text = String::from_utf8(bytes.into());
        Ok(Self(text.map_err(|_| {
            ApiError::unfit("body", "is not UTF-8", "plain text in UTF-8")
        })?))
    }
}

/// No body at all: whoever sends one expects something of it that would not happen.
#[derive(Debug)]
pub struct NoBody;

impl<S: Send + Sync> FromRequest<S> for NoBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = bounded(&parts.headers, body).await?;
        if bytes.is_empty() || bytes.as_ref() == b"{}" {
            return Ok(Self);
        }
        Err(ApiError::unfit(
            "body",
            "is not read by this call",
            "filters in the query string, as in GET /api/tasks",
        ))
    }
}

async fn receive(request: Request) -> Result<Bytes, ApiError> {
    let (parts, body) = request.into_parts();
    check_type(&parts.headers)?;
    bounded(&parts.headers, body).await
}

fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let essence = essence(headers);
    let is_json = essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"));
    if is_json {
        Ok(())
    } else {
        Err(ApiError::NotJsonType)
    }
}

/// What the body is said to be, without parameters.
fn essence(headers: &HeaderMap) -> String {
    let given = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    given
        .split(';')
        .next()
        .unwrap_or("")
        .trim()
        .to_ascii_lowercase()
}

async fn bounded(headers: &HeaderMap, body: Body) -> Result<Bytes, ApiError> {
    if headers
        .get(header::CONTENT_ENCODING)
        .is_some_and(|value| value != "identity")
    {
        return Err(ApiError::Encoded);
    }
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > BODY_BYTES) {
        return Err(ApiError::TooLarge);
    }
    let collected = tokio::time::timeout(BODY_TIME, collect(body)).await;
    collected.unwrap_or(Err(ApiError::SlowBody))
}

async fn collect(mut body: Body) -> Result<Bytes, ApiError> {
    let mut collected = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(&error))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if collected.len() + data.len() > BODY_BYTES {
            return Err(ApiError::TooLarge);
        }
        collected.extend_from_slice(&data);
    }
    Ok(collected.into())
}

/// Why a body does not arrive: what an application reads is also bounded from outside.
fn broken(error: &axum::Error) -> ApiError {
    let mut causes =
        std::iter::successors(std::error::Error::source(error), |cause| (*cause).source());
    if causes.any(<dyn std::error::Error>::is::<LengthLimitError>) {
        ApiError::TooLarge
    } else {
        ApiError::BrokenBody
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        refused(error.into_inner(), &path)
    })?;
    reader.end().map_err(|error| refused(error, "."))?;
    Ok(value)
}

fn refused(error: serde_json::Error, path: &str) -> ApiError {
    let (line, column) = (error.line(), error.column());
    let place = format!(" at line {line} column {column}");
    let problem = error.to_string().replace(&place, "");
    match error.classify() {
        Category::Data => {
            let (field, problem) = named(path, problem);
            ApiError::unfit(
                field,
                problem,
                "what GET /api/openapi.json says of this request",
            )
        }
        Category::Syntax | Category::Eof | Category::Io => ApiError::NotJson {
            problem: format!("{problem}, line {line}, column {column}"),
            line,
            column,
        },
    }
}

/// The field that a refusal is about: serde names a missing or unknown one only in its text.
fn named(path: &str, problem: String) -> (String, String) {
    let quoted = problem.split('`').nth(1).unwrap_or("");
    let is_about_a_member = ["missing", "unknown", "duplicate"]
        .iter()
        .any(|what| problem.starts_with(&format!("{what} field")));
    let root = if path == "." || path == "?" { "" } else { path };
    match (root, is_about_a_member) {
        ("", true) => (quoted.to_owned(), format!("does not fit: {problem}")),
        // The path of an unknown field ends with the field itself.
        (_, true) if root == quoted || root.ends_with(&format!(".{quoted}")) => {
            (root.to_owned(), format!("does not fit: {problem}"))
        }
        (_, true) => (
            format!("{root}.{quoted}"),
            format!("does not fit: {problem}"),
        ),
        ("", false) => ("body".to_owned(), format!("does not fit: {problem}")),
        (_, false) => (root.to_owned(), format!("does not fit: {problem}")),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_api::{BatchRequest, SubmitRequest};

    use super::*;

    fn problem<T: DeserializeOwned>(text: &str) -> longhaul_api::Problem {
        read::<T>(text.as_bytes())
            .err()
            .expect("must be refused")
            .problem()
    }

    #[test]
    fn what_is_not_json_is_told_with_its_place() {
        let told = problem::<SubmitRequest>("{\"taskType\": \"a\",\n  oops}");
        assert_eq!(
            (told.status, told.line, told.column),
            (400, Some(2), Some(3))
        );
        assert_eq!(problem::<SubmitRequest>("").status, 400);
        assert_eq!(
            problem::<SubmitRequest>("{\"taskType\":\"a\"} x").status,
            400
        );
    }

    #[test]
    fn a_field_that_does_not_fit_is_named() {
        let field = |text: &str| {
            let told = problem::<SubmitRequest>(text);
            assert_eq!(told.status, 422, "{text}");
            told.field.unwrap()
        };
        assert_eq!(field("{}"), "taskType");
        assert_eq!(field("{\"taskType\":7}"), "taskType");
        assert_eq!(field("{\"taskType\":\"a\",\"priority\":300}"), "priority");
        assert_eq!(field("{\"taskType\":\"a\",\"runAt\":\"soon\"}"), "runAt");
        assert_eq!(field("{\"taskType\":\"a\",\"delay\":\"soon\"}"), "delay");
        assert_eq!(field("{\"taskType\":\"a\",\"colour\":1}"), "colour");
        assert_eq!(
            field("{\"taskType\":\"a\",\"priority\":1,\"priority\":2}"),
            "priority"
        );
        assert_eq!(field("[]"), "body");
    }

    #[test]
    fn a_field_inside_a_batch_is_named_with_its_place() {
        let told = problem::<BatchRequest>("{\"tasks\":[{\"taskType\":\"a\"},{\"priority\":1}]}");
        assert_eq!(told.field.as_deref(), Some("tasks[1].taskType"));
    }

    #[test]
    fn parameters_are_kept_to_the_letter() {
        let text =
            "{\"taskType\":\"a\",\"parameters\": {\"b\" : 1.000, \"a\":12345678901234567890123}}";
        let request: SubmitRequest = read(text.as_bytes()).unwrap();
        assert_eq!(
            request.parameters.unwrap().get(),
            "{\"b\" : 1.000, \"a\":12345678901234567890123}"
        );
    }
}
