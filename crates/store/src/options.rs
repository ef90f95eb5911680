//! How a store is opened.

use std::sync::{Arc, atomic::AtomicI64};
use std::time::Duration;

use longhaul_domain::{Clock, event::OutboxPolicy};

use crate::SystemClock;

/// More than the ten seconds of a lock wait, and far more than any batch needs.
const OPERATION_WAIT: Duration = Duration::from_secs(30);

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The messages that changes write to the outbox.
    pub outbox: OutboxPolicy,
    /// The most connections to a database server. SQLite has one writer and a few readers.
    pub max_connections: u32,
    /// How long one operation on a database server may take. After that its outcome is unknown. A
    /// connection whose other end is gone would never answer.
    pub operation_wait: Duration,
    /// Opens a SQLite file that another process may have open. For tools that only read, or that
    /// write no tasks. A process that works on tasks must have the file to itself.
    pub is_beside: bool,
    /// The clock of a SQLite store. Databases on a server use the server's.
    pub clock: Arc<dyn Clock>,
    /// Microseconds added to a server's clock, for tests.
    pub clock_offset: Arc<AtomicI64>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            outbox: OutboxPolicy::default(),
            max_connections: 10,
            operation_wait: OPERATION_WAIT,
            is_beside: false,
            clock: Arc::new(SystemClock::default()),
            clock_offset: Arc::default(),
        }
    }
}
