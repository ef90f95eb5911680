//! The operations of the contract, each written once for all three databases.

pub(crate) mod submit;

pub(crate) mod artifacts;
pub(crate) mod claim;
pub(crate) mod finish;
pub(crate) mod host_affinity;
pub(crate) mod logs;
pub(crate) mod nodes;
pub(crate) mod progress;
pub(crate) mod strays;

pub(crate) mod bulk;
pub(crate) mod cancel;
pub(crate) mod reschedule;
pub(crate) mod retry;

pub(crate) mod expire;
pub(crate) mod fail_waiting;
pub(crate) mod maintenance;
pub(crate) mod outbox;
pub(crate) mod prune;
pub(crate) mod rescue;
pub(crate) mod task_counts;
pub(crate) mod waiting;

pub(crate) mod read;

pub(crate) mod tokens;

use longhaul_domain::{Invalid, StoreError, TaskRecord, bounds, contract::store::Access};

use crate::sql_error::SqlError;

/// The task. A missing task and one that the caller may not see look the same.
pub(crate) fn visible<'a>(
    task: Option<&'a TaskRecord>,
    access: &Access,
) -> Result<&'a TaskRecord, SqlError> {
    let seen = task.filter(|task| match access {
        Access::All => true,
        Access::Owner(owner) => task.owner == *owner,
    });
    seen.ok_or(SqlError::Store(StoreError::NotFound))
}

fn check_limit(limit: usize, most: usize) -> Result<(), Invalid> {
    if (1..=most).contains(&limit) {
        return Ok(());
    }

    Err(Invalid::new(
        "limit",
        format!("is {limit}"),
        format!("1 to {most}"),
    ))
}

/// Checks the types that a node names.
fn check_types(task_types: &[String]) -> Result<(), Invalid> {
    for name in task_types {
        bounds::check_label("taskType", name)?;
    }

    Ok(())
}

fn check_access(access: &Access) -> Result<(), Invalid> {
    match access {
        Access::All => Ok(()),
        Access::Owner(owner) => bounds::check_name("userId", owner),
    }
}
