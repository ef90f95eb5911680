//! Claims of the tasks that a notification names, by their ids.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_domain::{StoreError, TaskId, bounds, contract::notifier::HintedTask};

use crate::{admission::ReservedSlots, claimed, in_flight::HintSlot, node::Node};

/// What became of tasks that the notifier named.
pub(super) enum Notified {
    /// This many of its tasks were claimed. Tasks of other nodes are left out.
    Claimed(usize),
    /// It named no tasks, too many, or one that has no free slot.
    NeedsPoll,
}

/// Claims and starts these tasks by their ids.
pub(super) async fn claim_notified(
    node: &Arc<Node>,
    tasks: Vec<HintedTask>,
) -> Result<Notified, StoreError> {
    let is_too_many = tasks.len() > bounds::CLAIM_BATCH;
    if tasks.is_empty() || is_too_many || node.shutdown.is_draining() {
        return Ok(Notified::NeedsPoll);
    }

    // Lives until the tasks are in flight.
    let mut slots = ReservedSlots::new(node);
    let Some(ids) = reserve_slots(node, &mut slots, tasks) else {
        return Ok(Notified::NeedsPoll);
    };
    if ids.is_empty() {
        return Ok(Notified::Claimed(0));
    }

    let claimed = node.claim_by_id(ids).await?;
    let count = claimed.len();
    claimed::start_served(node, claimed);
    Ok(Notified::Claimed(count))
}

/// Reserves a slot for each task that is served here. `None` if there are too few: then the order
/// of the store decides which task goes first.
fn reserve_slots(
    node: &Node,
    slots: &mut ReservedSlots,
    tasks: Vec<HintedTask>,
) -> Option<BTreeSet<TaskId>> {
    let mut ids = BTreeSet::new();
    // One lock for all: another reservation in between could take the slots of half of them.
    let mut in_flight = node.in_flight();

    for task in tasks {
        match slots.reserve(&mut in_flight, &task.queue, &task.task_type) {
            HintSlot::Reserved => {
                ids.insert(task.task_id);
            }
            HintSlot::NotServed => {}
            HintSlot::TypeFull | HintSlot::QueueFull => return None,
        }
    }

    Some(ids)
}
