//! Why a call failed.

use crate::problem::Problem;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{url:?} is not the address of a server: {problem}")]
    Url { url: String, problem: String },
    #[error("no server answers at {url}: {problem}")]
    Unreachable { url: String, problem: String },
    #[error("the connection to {url} broke: {problem}")]
    Lost { url: String, problem: String },
    /// The server refused the request.
    #[error("{}", description(.0))]
    Refused(Box<Problem>),
    #[error(
        "{url} answers with HTTP status {status} and not as Longhaul does; is it the right address?"
    )]
    Strange { url: String, status: u16 },
    #[error("the answer cannot be read: {0}; are client and server of one version?")]
    Unreadable(String),
    #[error("the request cannot be sent: {0}")]
    Unsendable(String),
}

impl ClientError {
    /// The server's error code, if the server refused the request.
    pub fn code(&self) -> Option<&str> {
        self.problem().map(|problem| problem.code.as_str())
    }

    pub fn problem(&self) -> Option<&Problem> {
        if let Self::Refused(problem) = self {
            Some(problem)
        } else {
            None
        }
    }

    /// Whether the same call may succeed later: the server or its store was unavailable.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost { .. } => true,
            Self::Refused(problem) => problem.status >= 500,
            Self::Strange { status, .. } => *status >= 500,
            Self::Url { .. } | Self::Unreadable(_) | Self::Unsendable(_) => false,
        }
    }
}

/// The problem for people: what happened, each invalid field, and what is allowed.
fn description(problem: &Problem) -> String {
    // The detail lists several fields in one line; they follow below.
    let what = if problem.errors.is_empty() {
        problem.detail.as_str()
    } else {
        "these fields do not fit"
    };

    let mut text = format!("{what} ({})", problem.code);
    for one in &problem.errors {
        text += &format!("\n  {}: {}", one.field, one.problem);
    }
    if let (Some(line), Some(column)) = (problem.line, problem.column) {
        text += &format!("\n  at line {line}, column {column}");
    }

    // Most details already name what is allowed.
    if let Some(allowed) = &problem.allowed
        && !problem.detail.contains(allowed.as_str())
    {
        text += &format!("\n  allowed: {allowed}");
    }
    text
}

/// The most useful cause of a transport error: the outermost says little.
pub(super) fn causes(error: &reqwest::Error) -> String {
    let mut causes: Vec<String> = Vec::new();
    let mut next: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(cause) = next {
        let text = cause.to_string();
        if !causes.iter().any(|before| before.contains(&text)) {
            causes.push(text);
        }
        next = cause.source();
    }

    if error.is_timeout() && causes.is_empty() {
        causes.push("no answer in time".to_owned());
    }

    // The innermost cause is the one to act on.
    causes.pop().unwrap_or_else(|| error.to_string())
}
