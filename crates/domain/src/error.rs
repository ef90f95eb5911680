//! The errors, each with a stable code that a client can act on.

use crate::lifecycle::Refusal;

/// An invalid input: the field, the problem, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}; allowed: {allowed}")]
pub struct Invalid {
    /// The field in the spelling of the public contract.
    pub field: &'static str,
    /// The problem, as the rest of a sentence that starts with the field.
    pub problem: String,
    /// What is accepted.
    pub allowed: String,
}

impl Invalid {
    pub fn new(
        field: &'static str,
        problem: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self {
            field,
            problem: problem.into(),
            allowed: allowed.into(),
        }
    }
}

/// Why an operation of the store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The input is invalid; nothing was changed.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// No such task, or not one that the caller may see.
    #[error("there is no such task")]
    NotFound,
    /// The lifecycle does not allow it; nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The idempotency key was used before for another request body.
    #[error(
        "the idempotency key was used before with another body; use a new key for a new request"
    )]
    IdempotencyMismatch,
    /// The node was declared dead, or never registered; it must register with a new boot id.
    #[error("this node is not registered or was declared dead; register again with a new boot id")]
    NodeLost,
    /// The database cannot be reached or gave up. The outcome may be unknown; repeat the whole
    /// operation.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The schema was written by a newer program.
    #[error(
        "the database schema (migration {found}) is newer than this program (migration {known}); \
         run the newer program"
    )]
    SchemaTooNew { found: i64, known: i64 },
    /// The database gave an answer that it should never give. A bug, reported with its cause.
    #[error("the store failed: {0}")]
    Internal(String),
}

impl StoreError {
    /// The stable code of the failure.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid_field",
            Self::NotFound => "task_not_found",
            Self::Refused(refusal) => refusal.code(),
            Self::IdempotencyMismatch => "idempotency_key_reused",
            Self::NodeLost => "node_lost",
            Self::Unavailable(_) => "store_unavailable",
            Self::SchemaTooNew { .. } => "schema_too_new",
            Self::Internal(_) => "store_failed",
        }
    }

    /// Whether a repetition of the same call may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}
