//! Every way in which a request can fail, and its problem document.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use longhaul_api::{FieldProblem, Problem};
use longhaul_domain::{Invalid, StoreError, TokenFault};
use longhaul_engine::StoreFault;

use crate::{identity::Scope, reply};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    NotReady(#[from] StoreFault),
    #[error("the body is not JSON: {problem}")]
    NotJson {
        problem: String,
        line: usize,
        column: usize,
    },
    #[error("the body has more than {max} bytes", max = crate::body::BODY_BYTES)]
    TooLarge,
    #[error("the body did not arrive in time")]
    SlowBody,
    #[error("too many request bodies are being read; send this one again")]
    TooManyBodies,
    #[error("the connection broke before the body was complete")]
    BrokenBody,
    #[error("send the body as Content-Type: application/json")]
    NotJsonType,
    #[error("send the body without Content-Encoding: compressed requests are not supported")]
    Encoded,
    #[error("{}", summary(.fields))]
    InvalidFields {
        fields: Vec<FieldProblem>,
        allowed: Option<String>,
    },
    #[error("{field} {problem}; allowed: {allowed}")]
    BadFilter {
        field: String,
        problem: String,
        allowed: String,
    },
    #[error("this cursor does not belong to this list; start again without it")]
    BadCursor,
    #[error("the header X-User-Id is missing or invalid")]
    Unidentified,
    #[error("a request needs exactly one Host header")]
    NoHost,
    #[error("the request {problem}")]
    NotHttp { status: u16, problem: &'static str },
    #[error("send one token: Authorization: Bearer lh_…, or on live routes ?access_token=lh_…")]
    NoToken,
    #[error(transparent)]
    BadToken(TokenFault),
    #[error("this token is unknown")]
    UnknownToken,
    #[error("this token has expired; request a new one")]
    ExpiredToken,
    #[error("this token was revoked; request a new one")]
    RevokedToken,
    #[error("{limit} live streams are open, and no more are allowed; close one first")]
    TooManyStreams { limit: usize },
    #[error("too many connections are open; only /healthz and /readyz are answered now")]
    TooManyConnections,
    #[error("only the gateway may call: from its networks, and with its secret if it has one")]
    NotTheGateway,
    #[error("this API is not called by this name; identity.hosts lists its names")]
    UnknownHost,
    #[error("this call needs the scope {}", .0.as_str())]
    Forbidden(Scope),
    #[error("pages of other sites may not call this API")]
    CrossSite,
    #[error(
        "without tokens only this machine may call, by the name localhost or a loopback address"
    )]
    NotLocal,
    #[error(
        "this path is a WebSocket: connect with Upgrade: websocket, Sec-WebSocket-Version: 13 \
         and a key"
    )]
    NotWebSocket,
    #[error("this URL has no valid signature or has expired; request a new one")]
    BadSignature,
    #[error("there is no such file: it was never published, or it has expired and was deleted")]
    NoArtifact,
    #[error("there is no such queue; GET /api/queues lists those that had tasks")]
    NoQueue,
    #[error("there is no such path; GET /api/openapi.json lists all paths")]
    NoRoute,
    #[error("this path does not support this method; GET /api/openapi.json lists all methods")]
    NoMethod,
    #[error("this process is shutting down and accepts no more work")]
    Draining,
    #[error("the response could not be serialized")]
    Unwritable,
    #[error("send the body as Content-Type: text/plain")]
    NotTextType,
    /// For applications: the named thing does not exist, or belongs to another user.
    #[error("there is no such {0}")]
    Missing(&'static str),
    /// For applications: the request conflicts with the current state.
    #[error("{0}")]
    Conflict(String),
    /// For applications: an internal error. The text is logged and not shown to callers.
    #[error("{0}")]
    Failed(String),
}

impl ApiError {
    /// One invalid field.
    pub fn invalid_field(
        field: impl Into<String>,
        problem: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        let one = FieldProblem {
            field: field.into(),
            problem: problem.into(),
        };
        Self::InvalidFields {
            fields: vec![one],
            allowed: Some(allowed.into()),
        }
    }

    /// The same failure inside an element of the request, such as `tasks[3]`.
    pub(crate) fn within(self, element: &str) -> Self {
        if let Self::Store(StoreError::Invalid(invalid)) = self {
            return Self::from(invalid).within(element);
        }

        let Self::InvalidFields { fields, allowed } = self else {
            return self;
        };
        let inside = |one: FieldProblem| FieldProblem {
            field: format!("{element}.{}", one.field),
            ..one
        };

        Self::InvalidFields {
            fields: fields.into_iter().map(inside).collect(),
            allowed,
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Store(error) => status_of(error),
            Self::NotJson { .. }
            | Self::BadFilter { .. }
            | Self::BadCursor
            | Self::BrokenBody
            | Self::NoHost
            | Self::NotWebSocket => StatusCode::BAD_REQUEST,
            Self::NotHttp { status, .. } => {
                StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_REQUEST)
            }
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::NotJsonType | Self::NotTextType | Self::Encoded => {
                StatusCode::UNSUPPORTED_MEDIA_TYPE
            }
            Self::InvalidFields { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unidentified
            | Self::NoToken
            | Self::BadToken(_)
            | Self::UnknownToken
            | Self::ExpiredToken
            | Self::RevokedToken => StatusCode::UNAUTHORIZED,
            Self::TooManyStreams { .. } | Self::TooManyConnections => StatusCode::TOO_MANY_REQUESTS,
            Self::Forbidden(_)
            | Self::CrossSite
            | Self::NotLocal
            | Self::NotTheGateway
            | Self::UnknownHost
            | Self::BadSignature => StatusCode::FORBIDDEN,
            Self::NoRoute | Self::Missing(_) | Self::NoArtifact | Self::NoQueue => {
                StatusCode::NOT_FOUND
            }
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::NoMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::Draining | Self::NotReady(_) | Self::TooManyBodies => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Unwritable | Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::NotReady(_) => "store_unavailable",
            Self::NotJson { .. } => "invalid_json",
            Self::TooLarge => "body_too_large",
            Self::SlowBody => "body_too_slow",
            Self::TooManyBodies => "too_many_bodies",
            Self::BrokenBody => "body_incomplete",
            Self::NotJsonType => "not_json",
            Self::Encoded => "encoding_not_supported",
            Self::InvalidFields { .. } => "invalid_field",
            Self::BadFilter { .. } => "invalid_filter",
            Self::BadCursor => "invalid_cursor",
            Self::Unidentified => "unauthenticated",
            Self::NoHost | Self::NotHttp { .. } => "invalid_request",
            Self::NoToken => "token_missing",
            Self::BadToken(TokenFault::Shape) => "token_malformed",
            Self::BadToken(TokenFault::Checksum) => "token_mistyped",
            Self::UnknownToken => "token_unknown",
            Self::ExpiredToken => "token_expired",
            Self::RevokedToken => "token_revoked",
            Self::TooManyStreams { .. } => "too_many_streams",
            Self::TooManyConnections => "too_many_connections",
            Self::NotTheGateway => "not_the_gateway",
            Self::UnknownHost => "unknown_host",
            Self::Forbidden(_) => "forbidden",
            Self::CrossSite => "cross_site",
            Self::NotLocal => "not_local",
            Self::NotWebSocket => "not_websocket",
            Self::BadSignature => "invalid_signature",
            Self::NoArtifact => "artifact_not_found",
            Self::NoQueue => "queue_not_found",
            Self::NoRoute => "no_such_path",
            Self::NoMethod => "method_not_allowed",
            Self::Draining => "draining",
            Self::NotTextType => "not_text",
            Self::Missing(_) => "not_found",
            Self::Conflict(_) => "conflict",
            Self::Unwritable | Self::Failed(_) => "internal",
        }
    }

    /// When the client may repeat the request.
    fn wait_seconds(&self) -> Option<u64> {
        let is_busy = matches!(
            self,
            Self::TooManyStreams { .. } | Self::TooManyConnections | Self::TooManyBodies
        );
        let is_away = matches!(self, Self::Store(error) if error.is_transient());
        (is_busy || is_away).then_some(1)
    }

    /// The `WWW-Authenticate` header of token errors.
    fn challenge(&self) -> Option<&'static str> {
        if let Self::NoToken = self {
            return Some("Bearer realm=\"longhaul\"");
        }

        let is_token = matches!(
            self,
            Self::BadToken(_) | Self::UnknownToken | Self::ExpiredToken | Self::RevokedToken
        );
        is_token.then_some("Bearer realm=\"longhaul\", error=\"invalid_token\"")
    }

    pub(crate) fn problem(self) -> Problem {
        let status = self.status();
        let code = self.code();
        let detail = self.detail();

        let mut problem = Problem {
            kind: format!("urn:longhaul:{code}"),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail,
            field: None,
            allowed: None,
            line: None,
            column: None,
            errors: Vec::new(),
            correlation_id: None,
        };

        if let Self::Store(StoreError::Invalid(invalid)) = self {
            problem.field = Some(invalid.field.to_owned());
            problem.allowed = Some(invalid.allowed);
        } else if let Self::NotJson { line, column, .. } = self {
            problem.line = Some(line);
            problem.column = Some(column);
        } else if let Self::BadFilter { field, allowed, .. } = self {
            problem.field = Some(field);
            problem.allowed = Some(allowed);
        } else if let Self::InvalidFields { fields, allowed } = self {
            problem.field = fields.first().map(|one| one.field.clone());
            problem.allowed = allowed;
            problem.errors = if fields.len() > 1 { fields } else { Vec::new() };
        }

        problem
    }

    /// The text for the caller. Internals go to the log only.
    fn detail(&self) -> String {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the others have no text to hide"
        )]
        let text = match self {
            Self::Store(StoreError::Internal(_)) => "the store failed; see the server's log",
            Self::Store(StoreError::Unavailable(_)) => {
                "the store is unavailable and the outcome may be unknown; the request may be \
                 repeated"
            }
            Self::NotReady(StoreFault::Read(_)) => "the store cannot be read",
            Self::NotReady(StoreFault::Write(_)) => "the store can be read but not written",
            Self::Failed(_) => "the application failed; see the server's log",
            other => return other.to_string(),
        };

        text.to_owned()
    }
}

impl From<Invalid> for ApiError {
    fn from(invalid: Invalid) -> Self {
        Self::invalid_field(invalid.field, invalid.problem, invalid.allowed)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let wait = self.wait_seconds();
        let challenge = self.challenge();
        let is_expected = matches!(self, Self::Draining | Self::TooManyBodies);
        if status.is_server_error() && !is_expected {
            // Failed requests are logged only here.
            tracing::error!(error = %self, code = self.code(), "request failed");
        }

        let problem = self.problem();
        let mut response = reply::json(status, &problem);

        // The layer around the handlers adds the correlation id.
        response.extensions_mut().insert(problem);
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );

        if let Some(seconds) = wait {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }

        if let Some(challenge) = challenge {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static(challenge),
            );
        }

        response
    }
}

/// A problem as a response body.
pub(crate) fn body(problem: Problem) -> Body {
    serde_json::to_vec(&problem)
        .map(Body::from)
        .unwrap_or_default()
}

fn status_of(error: &StoreError) -> StatusCode {
    match error {
        StoreError::Invalid(_) | StoreError::IdempotencyMismatch => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        StoreError::NotFound => StatusCode::NOT_FOUND,
        StoreError::Refused(_) => StatusCode::CONFLICT,
        StoreError::Unavailable(_) | StoreError::NodeLost => StatusCode::SERVICE_UNAVAILABLE,
        StoreError::SchemaTooNew { .. } | StoreError::Internal(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

fn summary(fields: &[FieldProblem]) -> String {
    let problems: Vec<String> = fields
        .iter()
        .map(|one| format!("{} {}", one.field, one.problem))
        .collect();
    problems.join("; ")
}
