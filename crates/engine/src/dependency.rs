//! What a node works with and can do without for a while: a broker, a cache. While one is away the node is degraded, not
//! stopped.

/// Something beside the store.
pub trait Dependency: Send + Sync + std::fmt::Debug {
    /// What people call it: `broker`, `redis`.
    fn name(&self) -> &'static str;
    /// Whether it answers, as far as is known. Never waits.
    fn is_up(&self) -> bool;
}
