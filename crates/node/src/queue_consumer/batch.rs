//! What happens to the hints that a queue consumer handles together.

use std::sync::Arc;

use longhaul_domain::contract::broker::{Delivery, Hint};

use crate::{
    admission::ReservedSlots,
    in_flight::{HintSlot, InFlight},
    node::Node,
};

/// Who else has a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The broker, until the hint is acknowledged under this tag.
    Broker(u64),
    /// No one: it was acknowledged earlier, because its task could not be claimed yet.
    Early,
}

/// What happens to a hint.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// Its task has a slot and is claimed now.
    Claim,
    /// Its type has no free slot. The claimer looks for the task once there is one.
    Refuse,
    /// This node does not serve it. It is published again, for other nodes.
    PassOn,
    /// Its queue has no free slot. It stays with the broker and waits for one here.
    StayUnacknowledged(u64),
    /// The same for a hint that the broker no longer has: it is looked up again in a moment.
    LookUpLater,
}

const fn fate(slot: HintSlot, origin: Origin) -> Fate {
    match (slot, origin) {
        (HintSlot::Reserved, Origin::Broker(_) | Origin::Early) => Fate::Claim,
        (HintSlot::TypeFull, Origin::Broker(_) | Origin::Early) => Fate::Refuse,
        (HintSlot::NotServed, Origin::Broker(_)) => Fate::PassOn,
        (HintSlot::QueueFull, Origin::Broker(tag)) => Fate::StayUnacknowledged(tag),
        (HintSlot::NotServed | HintSlot::QueueFull, Origin::Early) => Fate::LookUpLater,
    }
}

/// The hints of one claim.
pub(super) struct Batch {
    /// A slot for each task that is claimed.
    pub(super) slots: ReservedSlots,
    pub(super) to_claim: Vec<Hint>,
    /// Those of `to_claim` that the broker no longer has.
    pub(super) early: Vec<Hint>,
    /// The tags of all received hints but those that stay with the broker.
    pub(super) to_acknowledge: Vec<u64>,
    pub(super) to_pass_on: Vec<Hint>,
}

/// The hints that no claim is made for now.
#[derive(Default)]
pub(super) struct Rest {
    /// The broker still has them.
    pub(super) without_slot: Vec<Delivery>,
    pub(super) refused: Vec<Hint>,
    /// Early hints that are looked up again.
    pub(super) later: Vec<Hint>,
}

impl Batch {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        Self {
            slots: ReservedSlots::new(node),
            to_claim: Vec::new(),
            early: Vec::new(),
            to_acknowledge: Vec::new(),
            to_pass_on: Vec::new(),
        }
    }

    /// Reserves a slot for each hint that can have one, received hints first. Returns those that
    /// are not part of the batch.
    pub(super) fn add(
        &mut self,
        in_flight: &mut InFlight,
        received: Vec<Delivery>,
        early: Vec<Hint>,
    ) -> Rest {
        let mut rest = Rest::default();
        for Delivery { hint, tag } in received {
            self.add_one(in_flight, hint, Origin::Broker(tag), &mut rest);
        }
        for hint in early {
            self.add_one(in_flight, hint, Origin::Early, &mut rest);
        }

        rest
    }

    fn add_one(&mut self, in_flight: &mut InFlight, hint: Hint, origin: Origin, rest: &mut Rest) {
        let slot = self.slots.reserve(in_flight, &hint.queue, &hint.task_type);
        let fate = fate(slot, origin);

        match origin {
            Origin::Early if fate == Fate::Claim => self.early.push(hint.clone()),
            Origin::Broker(tag) if fate != Fate::StayUnacknowledged(tag) => {
                self.to_acknowledge.push(tag);
            }
            Origin::Early | Origin::Broker(_) => {}
        }

        match fate {
            Fate::Claim => self.to_claim.push(hint),
            Fate::Refuse => rest.refused.push(hint),
            Fate::PassOn => self.to_pass_on.push(hint),
            Fate::StayUnacknowledged(tag) => rest.without_slot.push(Delivery { hint, tag }),
            Fate::LookUpLater => rest.later.push(hint),
        }
    }
}
