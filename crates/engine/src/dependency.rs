//! What a node uses beside its store and can do without for a while: a broker, a cache. While one
//! is down the node is degraded, not stopped.

pub trait Dependency: Send + Sync + std::fmt::Debug {
    /// The name in health reports: `broker`, `redis`.
    fn name(&self) -> &'static str;
    /// Whether it answered lately. Never waits.
    fn is_up(&self) -> bool;
}
