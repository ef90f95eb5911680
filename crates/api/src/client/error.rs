//! Why a call has no answer.

use crate::problem::Problem;

/// What went wrong between asking and reading the answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{url:?} is not the address of a server: {problem}")]
    Url { url: String, problem: String },
    #[error("no server answers at {url}: {problem}")]
    Unreachable { url: String, problem: String },
    #[error("the connection to {url} broke: {problem}")]
    Lost { url: String, problem: String },
    /// The server's own word.
    #[error("{}", told(.0))]
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
    /// The server's code for the failure, if it was the server that refused.
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

    /// The same call may succeed later: the server was away, or said that its store was.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost { .. } => true,
            Self::Refused(problem) => problem.status >= 500,
            Self::Strange { status, .. } => *status >= 500,
            Self::Url { .. } | Self::Unreadable(_) | Self::Unsendable(_) => false,
        }
    }
}

/// The problem for people: what happened, each field, and what would have been accepted.
fn told(problem: &Problem) -> String {
    // With several fields the detail is all of them in one line.
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
    if let Some(allowed) = problem
        .allowed
        .as_ref()
        .filter(|allowed| !problem.detail.contains(allowed.as_str()))
    {
        text += &format!("\n  allowed: {allowed}");
    }
    text
}

/// An error of the transport with its causes: the outermost alone says little.
pub(super) fn causes(error: &reqwest::Error) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut next: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(cause) = next {
        let text = cause.to_string();
        if !told.iter().any(|before| before.contains(&text)) {
            told.push(text);
        }
        next = cause.source();
    }
    if error.is_timeout() && told.is_empty() {
        told.push("it does not answer in time".to_owned());
    }
    // The innermost is the one that somebody can do something about.
    told.pop().unwrap_or_else(|| error.to_string())
}
