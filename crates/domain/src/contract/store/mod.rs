//! The store: the truth about every task.
//!
//! Each operation is one transaction. What a worker writes is guarded by state, attempt and lease
//! token; what a maintenance job writes, by the state that it decided on. An operation whose
//! outcome is unknown (the connection broke) may be repeated as it is: the answer then says what
//! the first try did. All times are the store's own clock.
//!
//! The contract is a sum of narrow traits, so that a caller can be given only what it needs.

mod attempt_data;
mod leases;
mod maintenance;
mod observer;
mod outbox;
mod queues;
mod task_commands;
mod task_reads;
mod tokens;

pub use attempt_data::{AttemptData, AttemptEnd, AttemptReport, Failure, Verdict};
pub use leases::Leases;
pub use maintenance::Maintenance;
pub use observer::{StoreObserver, StoreOperation};
pub use outbox::Outbox;
pub use queues::{QueueCommands, QueueHead, Queues};
pub use task_commands::{
    BulkChange, BulkOutcome, BulkRequest, Cancelled, ClaimNamed, ClaimRequest, Expired, Moved,
    RescueRequest, Rescued, RetryScope, Submitted, TaskCommands,
};
pub use task_reads::TaskReads;
pub use tokens::Tokens;

/// Everything that Longhaul asks of a store. Implement the narrow traits; their sum follows.
pub trait Store:
    TaskCommands
    + AttemptData
    + TaskReads
    + Queues
    + QueueCommands
    + Leases
    + Maintenance
    + Outbox
    + Tokens
    + std::fmt::Debug
{
}

impl<S> Store for S where
    S: TaskCommands
        + AttemptData
        + TaskReads
        + Queues
        + QueueCommands
        + Leases
        + Maintenance
        + Outbox
        + Tokens
        + std::fmt::Debug
{
}

/// Whose tasks an operation may see and change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// One owner's. Another's task does not exist for the caller.
    Owner(String),
    /// All, for administrators and the engine itself.
    All,
}
