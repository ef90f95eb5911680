//! What a node offers: slots, queues, and how often it does what.

use std::collections::HashMap;
use std::time::Duration;

/// What a node offers, and how often it polls and sends heartbeats.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// The name that is shown. The node is identified by a random boot id.
    pub name: String,
    /// The machine it runs on.
    pub host: String,
    /// How many tasks run at once.
    pub slots: usize,
    /// The queues that the node serves. Empty means every queue that the routing or a type names.
    pub queues: Vec<QueueSlots>,
    /// How many tasks may use a named resource at once.
    pub resources: HashMap<String, usize>,
    /// How many tasks of a type run at once, where an operator overrides the type.
    pub types: HashMap<String, usize>,
    /// How often the node polls for work when no hint arrives.
    pub poll: PollSettings,
    /// How often the node renews its leases while tasks run. A cancel of another process reaches
    /// the handler within this time.
    pub heartbeat: Duration,
    /// The same while nothing runs. The lease in the maintenance settings must be several times as
    /// long.
    pub idle_heartbeat: Duration,
    /// How long the node waits for the store's answer to a heartbeat.
    pub heartbeat_timeout: Duration,
    /// How old a claim must be before the node hands it back because it does not know of it. Longer
    /// than the answer to any claim can take.
    pub stray_age: Duration,
    /// How long a shutdown waits for running tasks.
    pub drain: Duration,
    /// Whether this node does background maintenance when it has the lease for it.
    pub maintenance: bool,
    /// Whether tasks of a dead node are reserved for its host for a while. Then the node claims
    /// those of its host first.
    pub asks_for_host_affinity: bool,
}

impl WorkerSettings {
    /// Shortens the intervals so that several heartbeats fit into a lease, the time for which a
    /// silent node counts as alive.
    #[must_use]
    pub fn within_lease(mut self, lease: Duration) -> Self {
        self.heartbeat = self.heartbeat.min(lease / 3);
        self.idle_heartbeat = self.idle_heartbeat.min(lease / 3);
        self.heartbeat_timeout = self.heartbeat_timeout.min(lease / 4);
        self
    }
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            name: "longhaul".to_owned(),
            host: "localhost".to_owned(),
            slots: 100,
            queues: Vec::new(),
            resources: HashMap::new(),
            types: HashMap::new(),
            poll: PollSettings::default(),
            heartbeat: Duration::from_secs(1),
            idle_heartbeat: Duration::from_secs(5),
            heartbeat_timeout: Duration::from_secs(7),
            stray_age: Duration::from_secs(30),
            drain: Duration::from_secs(30),
            maintenance: true,
            asks_for_host_affinity: false,
        }
    }
}

/// The slots of one queue on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSlots {
    /// The queue.
    pub name: String,
    /// Slots that only this queue uses.
    pub reserved: usize,
    /// The most slots it uses at once, reserved and shared ones together.
    pub at_most: Option<usize>,
    /// The weight of its fair share of the shared slots, while tasks wait in several queues.
    pub share: usize,
}

impl QueueSlots {
    /// A queue without reserved slots.
    pub fn shared(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            reserved: 0,
            at_most: None,
            share: 1,
        }
    }
}

/// How long a node waits between two claims from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollSettings {
    /// After a claim that found tasks.
    pub least: Duration,
    /// The longest wait while nothing is found, and so the cost of a lost hint.
    pub most: Duration,
}

impl Default for PollSettings {
    fn default() -> Self {
        Self {
            least: Duration::from_millis(5),
            most: Duration::from_secs(1),
        }
    }
}
