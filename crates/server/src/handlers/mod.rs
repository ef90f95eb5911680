//! The handlers, one noun a file. Each reads its request, asks the engine in the caller's name, and writes the answer.

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

use longhaul_domain::{Json, Task};

use crate::{
    api::Api,
    identity::{Caller, LOWEST_TIER},
    problem::ApiError,
};

/// Refuses a queue that is kept for another tier than the caller's: nobody gets into a better one by naming it.
pub(crate) fn check_queue(api: &Api, caller: &Caller, queue: Option<&str>) -> Result<(), ApiError> {
    let Some(queue) = queue.filter(|_| !caller.may_name_tiers()) else {
        return Ok(());
    };
    let tier = caller.tier.as_deref().unwrap_or(LOWEST_TIER);
    if api.catalog.is_open_to(tier, queue) {
        return Ok(());
    }
    let shown: String = queue.chars().take(60).collect();
    Err(ApiError::unfit(
        "queue",
        format!("{shown:?} is kept for another tier"),
        format!("a queue for {tier}"),
    ))
}

/// Puts the newest progress into tasks as the store has them, wherever they run (R38).
pub(crate) async fn show_live_progress(api: &Api, tasks: &mut [Task]) {
    let newest = api.engine.live_progress(tasks).await;
    for (task, newest) in tasks.iter_mut().zip(newest) {
        task.progress = newest
            .map(|newest| Json::trusted(newest.to_string()))
            .or(task.progress.take());
    }
}
