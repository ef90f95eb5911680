//! How a store is opened.

use std::sync::{Arc, atomic::AtomicI64};
use std::time::Duration;

use longhaul_domain::{Clock, event::OutboxPolicy};

use crate::SystemClock;

/// Above the ten seconds for which a lock may be waited for, and far above what any batch takes.
const OPERATION_WAIT: Duration = Duration::from_secs(30);

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Which messages are written beside changes.
    pub outbox: OutboxPolicy,
    /// Connections to a database server. SQLite has its own: one writer and a few readers.
    pub max_connections: u32,
    /// How long one operation on a database server may take before its outcome is unknown: a connection whose other end
    /// is gone would be waited for without end.
    pub operation_wait: Duration,
    /// Opens a SQLite file although another process may have it open: for tools that only read, or write what is not
    /// about tasks. Whoever works with the tasks of a file must be alone.
    pub is_beside: bool,
    /// The clock of a SQLite store. Databases on a server use the server's.
    pub clock: Arc<dyn Clock>,
    /// Microseconds that are added to a server's clock; for tests that travel in time.
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
