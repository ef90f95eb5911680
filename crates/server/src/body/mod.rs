//! Request bodies: bounded in size and time. An invalid body is refused with the field, or with the
//! line and column where it stops being JSON.

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, Request},
    http::{HeaderMap, header},
};
use http_body_util::{BodyExt as _, LengthLimitError};
use longhaul_api::object::Object;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::problem::ApiError;

mod arriving;
mod budget;

pub(crate) use arriving::ArrivingBody;
use arriving::TooSlow;
pub(crate) use budget::BodyBudget;

/// The largest body.
pub(crate) const BODY_BYTES: usize = 1024 * 1024;

/// A JSON object of type `T`.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        check_type(&parts.headers)?;
        let bytes = receive(&parts.headers, body).await?;
        Ok(Self(read(&bytes)?))
    }
}

/// A JSON object that may be absent; then it is the default of `T`.
#[derive(Debug)]
pub struct OptionalBody<T>(pub T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = receive(&parts.headers, body).await?;
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

        let bytes = receive(&parts.headers, body).await?;
        let text = String::from_utf8(bytes.into());
        text.map(Self)
            .map_err(|_| ApiError::invalid_field("body", "is not UTF-8", "plain text in UTF-8"))
    }
}

/// No body. One that is sent would be ignored, so it is refused.
#[derive(Debug)]
pub struct EmptyBody;

impl<S: Send + Sync> FromRequest<S> for EmptyBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = receive(&parts.headers, body).await?;
        if bytes.is_empty() || bytes.as_ref() == b"{}" {
            return Ok(Self);
        }

        Err(ApiError::invalid_field(
            "body",
            "is not read by this call",
            "filters in the query string, as in GET /api/tasks",
        ))
    }
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

/// The media type of the body, without parameters.
fn essence(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE);
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = text.split(';').next().unwrap_or("");
    essence.trim().to_ascii_lowercase()
}

/// Reads the body within its bounds.
async fn receive(headers: &HeaderMap, body: Body) -> Result<Bytes, ApiError> {
    let encoding = headers.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|value| value != "identity") {
        return Err(ApiError::Encoded);
    }

    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > BODY_BYTES) {
        return Err(ApiError::TooLarge);
    }

    // The length is within the budget, so it is allocated at once instead of by doubling.
    collect(body, announced.unwrap_or(0)).await
}

async fn collect(mut body: Body, announced: usize) -> Result<Bytes, ApiError> {
    let mut collected = Vec::with_capacity(announced);
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

/// Why a body does not arrive: what bounds it is among the causes.
fn broken(error: &axum::Error) -> ApiError {
    let causes =
        || std::iter::successors(std::error::Error::source(error), |cause| (*cause).source());

    // Bodies of mounted applications are bounded by a layer.
    if causes().any(<dyn std::error::Error>::is::<LengthLimitError>) {
        return ApiError::TooLarge;
    }

    if causes().any(<dyn std::error::Error>::is::<TooSlow>) {
        ApiError::SlowBody
    } else {
        ApiError::BrokenBody
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let Object(value) = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        refused(error.into_inner(), &path)
    })?;

    // Text after the document is not JSON either.
    reader.end().map_err(|error| refused(error, "."))?;
    Ok(value)
}

fn refused(error: serde_json::Error, path: &str) -> ApiError {
    let line = error.line();
    let column = error.column();
    let position = format!(" at line {line} column {column}");
    let problem = error.to_string().replace(&position, "");

    match error.classify() {
        Category::Data => {
            let (field, problem) = named(path, problem);
            ApiError::invalid_field(
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

/// The field that is invalid: serde names a missing or unknown one only in its message.
fn named(path: &str, problem: String) -> (String, String) {
    let quoted = problem.split('`').nth(1).unwrap_or("");
    let is_about_a_member = ["missing", "unknown", "duplicate"]
        .iter()
        .any(|what| problem.starts_with(&format!("{what} field")));
    let root = if path == "." || path == "?" { "" } else { path };
    // The path of an unknown field ends with the field itself.
    let ends_with_member = root == quoted || root.ends_with(&format!(".{quoted}"));

    let field = match (root, is_about_a_member) {
        ("", true) => quoted.to_owned(),
        ("", false) => "body".to_owned(),
        (_, true) if !ends_with_member => format!("{root}.{quoted}"),
        (_, true | false) => root.to_owned(),
    };
    (field, format!("does not fit: {problem}"))
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
    fn invalid_json_is_refused_with_line_and_column() {
        let refused = problem::<SubmitRequest>("{\"taskType\": \"a\",\n  oops}");
        assert_eq!(
            (refused.status, refused.line, refused.column),
            (400, Some(2), Some(3))
        );
        assert_eq!(problem::<SubmitRequest>("").status, 400);
        assert_eq!(
            problem::<SubmitRequest>("{\"taskType\":\"a\"} x").status,
            400
        );
    }

    #[test]
    fn an_invalid_field_is_named() {
        let field = |text: &str| {
            let refused = problem::<SubmitRequest>(text);
            assert_eq!(refused.status, 422, "{text}");
            refused.field.unwrap()
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
        assert_eq!(field("[\"a\"]"), "body");
    }

    #[test]
    fn a_field_inside_a_batch_is_named_with_its_index() {
        let refused =
            problem::<BatchRequest>("{\"tasks\":[{\"taskType\":\"a\"},{\"priority\":1}]}");
        assert_eq!(refused.field.as_deref(), Some("tasks[1].taskType"));
    }

    #[test]
    fn parameters_are_passed_on_unchanged() {
        let text =
            "{\"taskType\":\"a\",\"parameters\": {\"b\" : 1.000, \"a\":12345678901234567890123}}";
        let request: SubmitRequest = read(text.as_bytes()).unwrap();
        assert_eq!(
            request.parameters.unwrap().get(),
            "{\"b\" : 1.000, \"a\":12345678901234567890123}"
        );
    }
}
