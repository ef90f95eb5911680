//! Claims by name: of tasks that a bell rang for, each with a slot that is held for it.

use std::{collections::BTreeSet, sync::Arc};

use longhaul_domain::{
    StoreError, Task, TaskId, bounds,
    contract::{doorbell::RungFor, store::ClaimNamed},
};
use longhaul_engine::{Desk, desk::ForBell};

use super::{Inner, claimer, executor};
use crate::patience::{for_claim, within};

/// Claims and starts the tasks that the doorbell named, those of other nodes left out, and says how many. Nothing when that does
/// not answer the bell: it named none, or too many, or there is no room for one.
pub(super) async fn answer(
    inner: &Arc<Inner>,
    rung_for: Vec<RungFor>,
) -> Result<Option<usize>, StoreError> {
    if rung_for.is_empty() || rung_for.len() > bounds::CLAIM_BATCH || inner.draining.is_cancelled()
    {
        return Ok(None);
    }
    let (mut slots, mut ids) = (HeldSlots::new(inner), BTreeSet::new());
    for RungFor {
        task_id,
        queue,
        task_type,
    } in rung_for
    {
        let answer = slots.hold(&mut inner.desk(), &queue, &task_type);
        match answer {
            ForBell::Held => drop(ids.insert(task_id)),
            ForBell::NotServed => {}
            ForBell::TypeFull | ForBell::QueueFull => return Ok(None),
        }
    }
    if ids.is_empty() {
        return Ok(Some(0));
    }
    let tasks = claim(inner, ids).await?;
    let count = tasks.len();
    start(inner, tasks);
    Ok(Some(count))
}

/// Claims those of the tasks that can be claimed and whose types are served here.
pub(super) async fn claim(inner: &Inner, ids: BTreeSet<TaskId>) -> Result<Vec<Task>, StoreError> {
    let task_types = inner
        .desk()
        .slots()
        .task_types()
        .map(str::to_owned)
        .collect();
    let ids = ids.into_iter().collect();
    let request = ClaimNamed {
        node_id: inner.node(),
        host: inner.settings.host.clone(),
        task_types,
        ids,
    };
    within(
        for_claim(&inner.settings),
        inner.engine().store.claim_named(&request),
    )
    .await
}

/// Starts what was claimed. A task that was moved to a queue which is not served here is handed back: others have slots for it.
pub(super) fn start(inner: &Arc<Inner>, claimed: Vec<Task>) {
    let is_served = |task: &Task| {
        inner
            .desk()
            .slots()
            .has_room(&task.queue, &task.task_type)
            .is_some()
    };
    let (served, strange): (Vec<Task>, Vec<Task>) = claimed.into_iter().partition(is_served);
    claimer::start(inner, served);
    for task in strange {
        let taken = inner.desk().take(&task);
        if let Some(taken) = taken {
            executor::hand_back(inner, &task, taken.lease, taken.info);
        }
    }
}

/// Slots that are held for tasks, by their queues and types, until these are in hand or were not claimed.
pub(super) struct HeldSlots {
    inner: Arc<Inner>,
    slots: Vec<(String, String)>,
}

impl HeldSlots {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        Self {
            inner: Arc::clone(inner),
            slots: Vec::new(),
        }
    }

    /// Holds one more, if there is one.
    pub(super) fn hold(&mut self, desk: &mut Desk, queue: &str, task_type: &str) -> ForBell {
        let answer = desk.hold_for_bell(queue, task_type);
        if answer == ForBell::Held {
            self.slots.push((queue.to_owned(), task_type.to_owned()));
        }
        answer
    }
}

impl Drop for HeldSlots {
    fn drop(&mut self) {
        if self.slots.is_empty() {
            return;
        }
        let mut desk = self.inner.desk();
        for (queue, task_type) in &self.slots {
            desk.release_slot(queue, task_type);
        }
        drop(desk);
        self.inner.room_freed();
    }
}
