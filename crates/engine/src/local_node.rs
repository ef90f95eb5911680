//! The node of this process, as queries of the same process see it.

use longhaul_domain::NodeId;

/// What a process knows of its own node without asking the store.
pub trait LocalNode: Send + Sync + std::fmt::Debug {
    /// Its boot id.
    fn id(&self) -> NodeId;
    /// Tasks that run, and how many may run at once.
    fn slots(&self) -> (usize, usize);
    /// Whether it has a slot for one more task of this queue and type; `None` when it does not
    /// serve them.
    fn has_room(&self, queue: &str, task_type: &str) -> Option<bool>;
    /// Whether it is shutting down and takes no more work.
    fn is_draining(&self) -> bool;
}
