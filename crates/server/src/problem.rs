//! Every way in which a request can fail, and the problem document that tells it.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use longhaul_api::{FieldProblem, Problem};
use longhaul_domain::{Invalid, StoreError, TokenFault};

use crate::{identity::Scope, reply};

/// Why a request is not answered as it hoped.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error(transparent)]
    Store(#[from] StoreError),
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
    #[error("the connection broke before the body was complete")]
    BrokenBody,
    #[error("send the body as Content-Type: application/json")]
    NotJsonType,
    #[error("send the body without Content-Encoding: compressed requests are not taken")]
    Encoded,
    #[error("{}", summary(.fields))]
    Unfit {
        fields: Vec<FieldProblem>,
        allowed: Option<String>,
    },
    #[error("{field} {problem}; allowed: {allowed}")]
    BadFilter {
        field: String,
        problem: String,
        allowed: String,
    },
    #[error("this cursor is not one of this list; start again without it")]
    BadCursor,
    #[error("say who calls: the header X-User-Id is missing or not valid")]
    Unidentified,
    #[error(
        "show a token, once: Authorization: Bearer lh_…; on live routes ?access_token= does, too"
    )]
    NoToken,
    #[error(transparent)]
    BadToken(TokenFault),
    #[error("this token is not known here")]
    UnknownToken,
    #[error("this token has expired; ask for a new one")]
    ExpiredToken,
    #[error("this token was revoked; ask for a new one")]
    RevokedToken,
    #[error("too many tokens from this address were none; try again in {seconds} s")]
    TooManyFailures { seconds: u64 },
    #[error("only the gateway may call, and this address is not one of its own")]
    NotTheGateway,
    #[error("this call needs the scope {}", .0.as_str())]
    Forbidden(Scope),
    #[error("a page of another site must not call this API")]
    CrossSite,
    #[error(
        "without tokens only this machine may call, by the name localhost or its loopback address"
    )]
    NotLocal,
    #[error(
        "this path is a WebSocket: connect with Upgrade: websocket, Sec-WebSocket-Version: 13 and a key"
    )]
    NotWebSocket,
    #[error("this URL is not signed by this server, or its time is over; ask for a new one")]
    BadSignature,
    #[error("there is no such file: it was never published, or it has expired and was deleted")]
    NoArtifact,
    #[error("there is no such path; GET /api/openapi.json lists all")]
    NoRoute,
    #[error("this path does not know this method; GET /api/openapi.json lists all")]
    NoMethod,
    #[error("this process shuts down and takes no more work")]
    Draining,
    #[error("the answer could not be written")]
    Unwritable,
    #[error("send the body as Content-Type: text/plain")]
    NotTextType,
    /// Of an application: what the caller names is not there, or not theirs.
    #[error("there is no such {0}")]
    Missing(&'static str),
    /// Of an application: what is asked for does not fit what is there.
    #[error("{0}")]
    Conflict(String),
    /// Of an application: something is wrong inside. It is logged; callers are not told.
    #[error("{0}")]
    Failed(String),
}

impl ApiError {
    /// A field that does not fit.
    pub fn unfit(
        field: impl Into<String>,
        problem: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        let one = FieldProblem {
            field: field.into(),
            problem: problem.into(),
        };
        Self::Unfit {
            fields: vec![one],
            allowed: Some(allowed.into()),
        }
    }

    /// The same failure of a part of the request: `tasks[3]`.
    pub(crate) fn within(self, part: &str) -> Self {
        if let Self::Store(StoreError::Invalid(invalid)) = self {
            return Self::from(invalid).within(part);
        }
        let Self::Unfit { fields, allowed } = self else {
            return self;
        };
        let inside = |one: FieldProblem| FieldProblem {
            field: format!("{part}.{}", one.field),
            ..one
        };
        Self::Unfit {
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
            | Self::NotWebSocket => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::NotJsonType | Self::NotTextType | Self::Encoded => {
                StatusCode::UNSUPPORTED_MEDIA_TYPE
            }
            Self::Unfit { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unidentified
            | Self::NoToken
            | Self::BadToken(_)
            | Self::UnknownToken
            | Self::ExpiredToken
            | Self::RevokedToken => StatusCode::UNAUTHORIZED,
            Self::TooManyFailures { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Forbidden(_)
            | Self::CrossSite
            | Self::NotLocal
            | Self::NotTheGateway
            | Self::BadSignature => StatusCode::FORBIDDEN,
            Self::NoRoute | Self::Missing(_) | Self::NoArtifact => StatusCode::NOT_FOUND,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::NoMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::Draining => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unwritable | Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::NotJson { .. } => "invalid_json",
            Self::TooLarge => "body_too_large",
            Self::SlowBody => "body_too_slow",
            Self::BrokenBody => "body_incomplete",
            Self::NotJsonType => "not_json",
            Self::Encoded => "encoding_not_supported",
            Self::Unfit { .. } => "invalid_field",
            Self::BadFilter { .. } => "invalid_filter",
            Self::BadCursor => "invalid_cursor",
            Self::Unidentified => "unauthenticated",
            Self::NoToken => "token_missing",
            Self::BadToken(TokenFault::Shape) => "token_malformed",
            Self::BadToken(TokenFault::Checksum) => "token_mistyped",
            Self::UnknownToken => "token_unknown",
            Self::ExpiredToken => "token_expired",
            Self::RevokedToken => "token_revoked",
            Self::TooManyFailures { .. } => "too_many_failures",
            Self::NotTheGateway => "not_the_gateway",
            Self::Forbidden(_) => "forbidden",
            Self::CrossSite => "cross_site",
            Self::NotLocal => "not_local",
            Self::NotWebSocket => "not_websocket",
            Self::BadSignature => "invalid_signature",
            Self::NoArtifact => "artifact_not_found",
            Self::NoRoute => "no_such_path",
            Self::NoMethod => "method_not_allowed",
            Self::Draining => "draining",
            Self::NotTextType => "not_text",
            Self::Missing(_) => "not_found",
            Self::Conflict(_) => "conflict",
            Self::Unwritable | Self::Failed(_) => "internal",
        }
    }

    /// When the same request may be worth repeating.
    fn wait_seconds(&self) -> Option<u64> {
        if let Self::TooManyFailures { seconds } = self {
            return Some(*seconds);
        }
        matches!(self, Self::Store(error) if error.is_transient()).then_some(1)
    }

    /// What a client is asked to show, where tokens are asked for.
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
        let (status, code, detail) = (self.status(), self.code(), self.detail());
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
            (problem.field, problem.allowed) =
                (Some(invalid.field.to_owned()), Some(invalid.allowed));
        } else if let Self::NotJson { line, column, .. } = self {
            (problem.line, problem.column) = (Some(line), Some(column));
        } else if let Self::BadFilter { field, allowed, .. } = self {
            (problem.field, problem.allowed) = (Some(field), Some(allowed));
        } else if let Self::Unfit { fields, allowed } = self {
            problem.field = fields.first().map(|one| one.field.clone());
            problem.allowed = allowed;
            problem.errors = if fields.len() > 1 { fields } else { Vec::new() };
        }
        problem
    }

    /// What a caller is told. The inside of a store is not for callers.
    fn detail(&self) -> String {
        if let Self::Store(StoreError::Internal(_)) = self {
            return "the store failed; the log of the server says how".to_owned();
        }
        if let Self::Store(StoreError::Unavailable(_)) = self {
            return "the store cannot be reached; the outcome may be unknown, and the same request may be repeated"
                .to_owned();
        }
        if let Self::Failed(_) = self {
            return "the application failed; the log of the server says how".to_owned();
        }
        self.to_string()
    }
}

impl From<Invalid> for ApiError {
    fn from(invalid: Invalid) -> Self {
        Self::unfit(invalid.field, invalid.problem, invalid.allowed)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, wait, challenge) = (self.status(), self.wait_seconds(), self.challenge());
        if status.is_server_error() && !matches!(self, Self::Draining) {
            // The one place where a failed request is logged.
            tracing::error!(error = %self, code = self.code(), "a request failed");
        }
        let problem = self.problem();
        let mut response = reply::json(status, &problem);
        // Whoever stands around the request adds what it belongs to.
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

/// The text of a problem that was told before.
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
    let told: Vec<String> = fields
        .iter()
        .map(|one| format!("{} {}", one.field, one.problem))
        .collect();
    told.join("; ")
}
