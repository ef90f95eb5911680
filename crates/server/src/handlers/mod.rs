//! The handlers, one file per noun. Each parses its request, calls the engine with the caller's
//! rights, and serializes the result. Its documentation stands beside it.

pub(crate) mod artifacts;
pub(crate) mod bulk;
pub(crate) mod change;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod lists;
pub(crate) mod metrics;
pub(crate) mod nodes;
pub(crate) mod pages;
pub(crate) mod queues;
pub(crate) mod stats;
pub(crate) mod stream;
pub(crate) mod submit;
pub(crate) mod tasks;
pub(crate) mod types;
pub(crate) mod why;
pub(crate) mod ws;

use longhaul_domain::{Json, TaskRecord};

use crate::{
    api::Api,
    identity::{Caller, LOWEST_TIER},
    problem::ApiError,
};

/// Refuses a queue that is reserved for another tier than the caller's.
pub(crate) fn check_queue(api: &Api, caller: &Caller, queue: Option<&str>) -> Result<(), ApiError> {
    let Some(queue) = queue else {
        return Ok(());
    };

    let tier = caller.tier.as_deref().unwrap_or(LOWEST_TIER);
    if caller.may_name_tiers() || api.catalog.is_open_to(tier, queue) {
        return Ok(());
    }

    let shown: String = queue.chars().take(60).collect();
    Err(ApiError::invalid_field(
        "queue",
        format!("{shown:?} is reserved for another tier"),
        format!("a queue for {tier}"),
    ))
}

/// Replaces the stored progress of tasks by the newest, wherever they run.
pub(crate) async fn show_live_progress(api: &Api, tasks: &mut [TaskRecord]) {
    let newest = api.engine.live_progress(tasks).await;
    for (task, newest) in tasks.iter_mut().zip(newest) {
        task.progress = newest
            .map(|newest| Json::trusted(newest.to_string()))
            .or(task.progress.take());
    }
}
