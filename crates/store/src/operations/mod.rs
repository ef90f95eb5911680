//! The operations of the contract, each written once for all three databases.

pub(crate) mod submit;

pub(crate) mod artifacts;
pub(crate) mod claim;
pub(crate) mod finish;
pub(crate) mod kept;
pub(crate) mod logs;
pub(crate) mod nodes;
pub(crate) mod progress;
pub(crate) mod strays;

pub(crate) mod bulk;
pub(crate) mod cancel;
pub(crate) mod reschedule;
pub(crate) mod retry;

pub(crate) mod duties;
pub(crate) mod expire;
pub(crate) mod fail_waiting;
pub(crate) mod outbox;
pub(crate) mod prune;
pub(crate) mod rescue;
pub(crate) mod tallies;
pub(crate) mod waiting;

pub(crate) mod read;

pub(crate) mod tokens;

use longhaul_domain::{StoreError, Task, contract::store::Access};

use crate::failure::Failure;

/// The task, unless it is missing or not for the caller to see: both look the same.
pub(crate) fn visible<'a>(task: Option<&'a Task>, access: &Access) -> Result<&'a Task, Failure> {
    let seen = task.filter(|task| match access {
        Access::All => true,
        Access::Owner(owner) => task.owner == *owner,
    });
    seen.ok_or(Failure::Store(StoreError::NotFound))
}
