//! Errors as RFC 9457 problem documents.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a request failed: `code` for programs, `detail` for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `urn:longhaul:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The reason phrase of the HTTP status.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code of the error.
    pub code: String,
    /// What happened this time.
    pub detail: String,
    /// The invalid field, as the request spells it: `parameters.ms`, `tasks[3].priority`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub field: Option<String>,
    /// What is allowed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allowed: Option<String>,
    /// Where the body stops being JSON.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub column: Option<usize>,
    /// The invalid fields when there are several; at most the first ten.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub errors: Vec<FieldProblem>,
    /// The correlation id of the request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub correlation_id: Option<String>,
}

/// One invalid field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldProblem {
    pub field: String,
    pub problem: String,
}
