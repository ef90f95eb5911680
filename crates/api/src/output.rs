//! A task's output, as its stream sends it.

use longhaul_domain::Status;
use serde::Serialize;
use utoipa::ToSchema;

use crate::task::StatusSchema;

/// Data of the event `chunk`, whose id is its offset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OutputChunk {
    pub text: String,
}

/// Data of the event `rewind`: a new attempt writes anew what came after this offset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OutputRewind {
    /// Chunks with a higher id are to be forgotten; 0: all of them.
    pub offset: u64,
}

/// Data of the event `reset`: something before this offset is no longer kept, and the reader does not have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OutputReset {
    /// What follows starts after it.
    pub offset: u64,
    /// Why.
    pub reason: String,
}

/// Data of the event `end`, after which nothing follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OutputEnd {
    /// How the task ended.
    #[schema(value_type = StatusSchema)]
    pub status: Status,
}
