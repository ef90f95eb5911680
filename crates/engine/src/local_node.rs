//! The node of this process, as others of the process may ask about it.

use longhaul_domain::NodeId;

/// What can be known of a node without asking the store.
pub trait LocalNode: Send + Sync + std::fmt::Debug {
    /// Its boot id.
    fn id(&self) -> NodeId;
    /// Tasks that run, and how many may at once.
    fn slots(&self) -> (usize, usize);
    /// Whether it serves this queue and type, and has a slot for one more task of them. `None` when it serves them not.
    fn has_room(&self, queue: &str, task_type: &str) -> Option<bool>;
    /// Whether it takes no more work because it shuts down.
    fn is_draining(&self) -> bool;
}
