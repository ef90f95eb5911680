//! The doorbell: a hint that a queue may have work. It may be lost, repeated or late; nothing rests on it but speed.

use async_trait::async_trait;

/// Rings and hears.
#[async_trait]
pub trait Doorbell: Send + Sync + std::fmt::Debug {
    /// Says that `queue` may have work. Never waits; many rings may become one.
    fn ring(&self, queue: &str);
    /// Waits for a ring since the last call. May return without one.
    async fn heard(&self);
}
