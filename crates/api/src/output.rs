//! The events of a task's output stream.

use longhaul_domain::Status;
use serde::Serialize;
use utoipa::ToSchema;

use crate::task::StatusSchema;

/// Data of the event `chunk`. The event's id is its offset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OutputChunk {
    pub text: String,
}

/// Data of the event `rewind`: a new attempt replaces everything after this offset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OutputRewind {
    /// Discard chunks with a higher id; 0 discards all.
    pub offset: u64,
}

/// Data of the event `reset`: output before this offset has been deleted before the client could
/// read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OutputReset {
    /// The stream continues after this offset.
    pub offset: u64,
    /// Why the output is incomplete.
    pub reason: String,
}

/// Data of the event `end`, the last of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OutputEnd {
    /// How the task ended.
    #[schema(value_type = StatusSchema)]
    pub status: Status,
}
