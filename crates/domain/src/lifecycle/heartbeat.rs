//! Heartbeat: a node asks which of its leases are still valid. The task itself does not change.

use super::{Command, Refusal, fence};
use crate::task::{Lease, TaskRecord};

/// Refuses a lease that was taken over, cancelled or ended.
pub fn decide(task: &TaskRecord, lease: &Lease) -> Result<(), Refusal> {
    fence(task, Command::Heartbeat, lease)
}
