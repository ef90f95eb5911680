//! Refuses worker settings under which a task could never run.

use longhaul_domain::{Invalid, QueueName};
use longhaul_node::{QueueSlots, WorkerSettings};

use super::Builder;

impl Builder {
    /// Checks the slots of a worker for the registered types.
    pub(crate) fn check_slots(&self) -> Result<(), Invalid> {
        check_reserved(&self.worker)?;
        check_queue_limits(&self.worker.queues)?;
        check_unreserved(&self.worker)?;
        check_resources(&self.worker)?;
        for queue in &self.worker.queues {
            QueueName::parse(&queue.name)?;
        }

        if self.worker.slots == 0 && self.registry.types().next().is_some() {
            let allowed = "1 or more; start_maintenance() starts a node that runs no task";
            return Err(Invalid::new(
                "slots",
                "is 0, and there are types that would never run",
                allowed,
            ));
        }

        Ok(())
    }
}

fn reserved(worker: &WorkerSettings) -> usize {
    let each = worker.queues.iter().map(|queue| queue.reserved);
    each.fold(0, usize::saturating_add)
}

/// No more slots are reserved than there are.
fn check_reserved(worker: &WorkerSettings) -> Result<(), Invalid> {
    let slots = worker.slots;
    let reserved = reserved(worker);
    if reserved <= slots {
        return Ok(());
    }

    Err(Invalid::new(
        "slots",
        format!("is {slots}, and queues reserve {reserved}"),
        format!("{reserved} or more, or fewer reserved"),
    ))
}

/// Each queue may use the slots that it reserves, and at least one.
fn check_queue_limits(queues: &[QueueSlots]) -> Result<(), Invalid> {
    for queue in queues {
        let least = queue.reserved.max(1);
        if queue.at_most.is_some_and(|most| most < least) {
            return Err(Invalid::new(
                "at_most",
                format!("of {} is less than what it reserves, or 0", queue.name),
                "as many as `reserved`, and at least 1",
            ));
        }
    }

    Ok(())
}

/// A queue that reserves no slot needs one that no other queue reserves.
fn check_unreserved(worker: &WorkerSettings) -> Result<(), Invalid> {
    let slots = worker.slots;
    let all_reserved = slots > 0 && reserved(worker) == slots;
    let unreserved = worker.queues.iter().find(|queue| queue.reserved == 0);

    match unreserved {
        Some(queue) if all_reserved => Err(Invalid::new(
            "slots",
            format!(
                "is {slots}, all of them reserved, and {} has none of its own",
                queue.name
            ),
            "more, or some reserved for it",
        )),
        Some(_) | None => Ok(()),
    }
}

/// Each resource and each limited type may be used by at least one task.
fn check_resources(worker: &WorkerSettings) -> Result<(), Invalid> {
    for (name, most) in worker.resources.iter().chain(&worker.types) {
        if *most == 0 {
            return Err(Invalid::new(
                "limit",
                format!("of {name} is 0: nothing that needs it would ever run"),
                "1 or more",
            ));
        }
    }

    Ok(())
}
