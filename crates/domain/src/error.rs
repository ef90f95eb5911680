//! What can go wrong, each with a stable code that a client can act on.

use crate::lifecycle::Refusal;

/// One input that does not fit: which field, what is wrong with it, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}; allowed: {allowed}")]
pub struct Invalid {
    /// The field as the public contract spells it.
    pub field: &'static str,
    /// What is wrong, as the rest of a sentence that starts with the field.
    pub problem: String,
    /// What would have been accepted.
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

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The input does not fit; nothing was changed.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// No such task, or not one that the caller may see.
    #[error("there is no such task")]
    NotFound,
    /// The lifecycle does not allow it; nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The idempotency key was used before with another body.
    #[error(
        "the idempotency key was used before with another body; use a new key for a new request"
    )]
    IdempotencyMismatch,
    /// The node was declared dead, or never registered; it must register with a new boot id.
    #[error("this node is not registered or was declared dead; register again with a new boot id")]
    NodeLost,
    /// The database cannot be reached or gave up. The outcome may be unknown: repeat the whole operation.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The schema was written by a newer program.
    #[error(
        "the database schema (migration {found}) is newer than this program (migration {known}); run the newer program"
    )]
    SchemaTooNew { found: i64, known: i64 },
    /// The database answered something that it should never answer. A bug, reported with its cause.
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

    /// Whether the same call may succeed when it is simply repeated.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}
