//! Pages of lists.

use serde::{Deserialize, Serialize};

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// The `cursor` of the next page; absent on the last page. It is opaque.
    pub next_cursor: Option<String>,
}
