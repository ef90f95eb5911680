//! Heartbeat: a node asks which of its leases still hold. The task itself does not change.

use super::{Command, Refusal, fence};
use crate::task::{Lease, Task};

/// Refuses a lease that was taken over, cancelled or ended.
pub fn decide(task: &Task, lease: &Lease) -> Result<(), Refusal> {
    fence(task, Command::Heartbeat, lease)
}
