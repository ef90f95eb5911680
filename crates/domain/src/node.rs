//! Processes that run tasks, and the leases of the duties that one of them does for all.

use serde::{Deserialize, Serialize};

use crate::{bounds, error::Invalid, ids::NodeId, time::Timestamp};

/// A process that runs tasks. Its name and host are for people; the boot id is its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub id: NodeId,
    pub name: String,
    pub host: String,
    pub started_at: Timestamp,
    /// The lease of every task that the node holds is renewed by this alone.
    pub heartbeat_at: Timestamp,
    /// When it was declared dead. A dead node stays dead: the process comes back under a new id.
    pub lost_at: Option<Timestamp>,
    /// What it runs, as it said when it started; nothing of one whose version does not say.
    pub serves: Option<Serves>,
}

/// What a node has slots for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Serves {
    pub queues: Vec<String>,
    pub task_types: Vec<String>,
    /// Tasks that it runs at once; none of a node that does duties alone.
    pub slots: usize,
}

impl Node {
    /// Whether it lives and runs tasks, as far as anybody knows.
    pub fn is_at_work(&self) -> bool {
        let runs_some = |serves: &Serves| serves.slots > 0 && !serves.task_types.is_empty();
        self.lost_at.is_none() && self.serves.as_ref().is_none_or(runs_some)
    }

    pub fn check(name: &str, host: &str) -> Result<(), Invalid> {
        bounds::check_name("nodeName", name)?;
        bounds::check_name("host", host)
    }
}

/// The right to do one background duty until it runs out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DutyLease {
    pub duty: String,
    pub node_id: NodeId,
    /// Raised each time the duty changes hands; fences what the holder before may still try.
    pub epoch: u64,
    pub leased_until: Timestamp,
}

impl DutyLease {
    /// Who holds the duty after `node_id` asks for it at `now`, if the asker may have it.
    pub fn grant(
        held: Option<&Self>,
        duty: &str,
        node_id: NodeId,
        ttl_ms: u64,
        now: Timestamp,
    ) -> Option<Self> {
        let epoch = match held {
            None => 1,
            Some(lease) if lease.node_id == node_id => lease.epoch,
            Some(lease) if lease.leased_until <= now => lease.epoch + 1,
            Some(_) => return None,
        };
        Some(Self {
            duty: duty.to_owned(),
            node_id,
            epoch,
            leased_until: now.plus_ms(ttl_ms),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duty_changes_hands_only_when_its_lease_has_run_out() {
        let node = |n| NodeId(uuid::Uuid::from_u128(n));
        let at = Timestamp::from_micros;
        let first = DutyLease::grant(None, "pruner", node(1), 1, at(0)).unwrap();
        assert_eq!(
            DutyLease::grant(Some(&first), "pruner", node(2), 1, at(999)),
            None
        );
        assert_eq!(
            DutyLease::grant(Some(&first), "pruner", node(1), 1, at(999))
                .unwrap()
                .epoch,
            1
        );
        assert_eq!(
            DutyLease::grant(Some(&first), "pruner", node(2), 1, at(1_000))
                .unwrap()
                .epoch,
            2
        );
    }
}
