//! Pages of lists.

use serde::{Deserialize, Serialize};

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Asks for the next page as `cursor`; absent when there is none. It means nothing else.
    pub next_cursor: Option<String>,
}
