//! Nodes, and the leases of maintenance jobs that one of them does for all.

use serde::{Deserialize, Serialize};

use crate::{bounds, error::Invalid, ids::NodeId, time::Timestamp};

/// A process that runs tasks. Its identity is the boot id; name and host are for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecord {
    pub id: NodeId,
    pub name: String,
    pub host: String,
    pub started_at: Timestamp,
    /// This alone renews the leases of all tasks of the node.
    pub heartbeat_at: Timestamp,
    /// When it was declared dead. A dead node stays dead: its process comes back under a new id.
    pub lost_at: Option<Timestamp>,
    /// What it serves, from its registration; `None` for a version that does not say.
    pub serves: Option<Serves>,
}

/// What a node has slots for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Serves {
    pub queues: Vec<String>,
    pub task_types: Vec<String>,
    /// Tasks that it runs at once; 0 for a node that does maintenance alone.
    pub slots: usize,
}

impl NodeRecord {
    /// Whether it lives and runs tasks, as far as the store knows.
    pub fn is_at_work(&self) -> bool {
        let runs_some = |serves: &Serves| serves.slots > 0 && !serves.task_types.is_empty();
        self.lost_at.is_none() && self.serves.as_ref().is_none_or(runs_some)
    }

    pub fn check(name: &str, host: &str) -> Result<(), Invalid> {
        bounds::check_name("nodeName", name)?;
        bounds::check_name("host", host)
    }
}

/// The right to do one maintenance job until the lease runs out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintenanceLease {
    pub job: String,
    pub node_id: NodeId,
    /// Raised each time the job moves to another node; fences off the node before.
    pub epoch: u64,
    pub leased_until: Timestamp,
}

impl MaintenanceLease {
    /// The lease of `node_id`, which asks for the job at `now`; `None` while another node has it.
    pub fn grant(
        current: Option<&Self>,
        job: &str,
        node_id: NodeId,
        ttl_ms: u64,
        now: Timestamp,
    ) -> Option<Self> {
        let epoch = match current {
            None => 1,
            Some(lease) if lease.node_id == node_id => lease.epoch,
            Some(lease) if lease.leased_until <= now => lease.epoch + 1,
            Some(_) => return None,
        };

        Some(Self {
            job: job.to_owned(),
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
    fn a_job_moves_to_another_node_only_when_its_lease_has_run_out() {
        let node = |n| NodeId(uuid::Uuid::from_u128(n));
        let at = Timestamp::from_micros;
        let first = MaintenanceLease::grant(None, "pruner", node(1), 1, at(0)).unwrap();
        assert_eq!(
            MaintenanceLease::grant(Some(&first), "pruner", node(2), 1, at(999)),
            None
        );
        assert_eq!(
            MaintenanceLease::grant(Some(&first), "pruner", node(1), 1, at(999))
                .unwrap()
                .epoch,
            1
        );

        assert_eq!(
            MaintenanceLease::grant(Some(&first), "pruner", node(2), 1, at(1_000))
                .unwrap()
                .epoch,
            2
        );
    }
}
