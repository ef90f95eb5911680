//! Errors as RFC 9457 problem documents.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What went wrong. Programs go by `code`, people read `detail`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// A name for the kind of problem: `urn:longhaul:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The meaning of the HTTP status.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code of the failure.
    pub code: String,
    /// What happened this time.
    pub detail: String,
    /// The field that does not fit, as the request spells it: `parameters.ms`, `tasks[3].priority`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub field: Option<String>,
    /// What would have been accepted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allowed: Option<String>,
    /// Where the text stops being JSON.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub column: Option<usize>,
    /// Every field that does not fit, when there are several; the first ones of many.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub errors: Vec<FieldProblem>,
    /// What the caller said that the request belongs to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub correlation_id: Option<String>,
}

/// One field that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldProblem {
    pub field: String,
    pub problem: String,
}
