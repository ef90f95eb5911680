//! The store's clock, as far as a process knows it without asking.

use std::time::Duration;

use longhaul_domain::{Timestamp, time::millis};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The store's clock, carried on from its last reading. Good enough for hints, never for decisions
/// about a task.
#[derive(Debug, Default)]
pub struct StoreTime {
    /// Reading and instant change together; held for one copy.
    last_reading: Mutex<Option<(Timestamp, Instant)>>,
}

impl StoreTime {
    /// Notes that the store's clock shows `now`.
    pub fn note(&self, now: Timestamp) {
        // The lock is held for one assignment.
        *self.last_reading.lock() = Some((now, Instant::now()));
    }

    /// The store's time now; `None` before the first reading.
    pub fn now(&self) -> Option<Timestamp> {
        // The lock is released at once. The reading is a copy.
        let last_reading = *self.last_reading.lock();
        let (reading, read_at) = last_reading?;

        let elapsed_ms = millis(read_at.elapsed());
        Some(reading.plus_ms(elapsed_ms))
    }

    /// How long until `moment`; zero when it has passed, or when the time is unknown.
    pub fn until(&self, moment: Timestamp) -> Duration {
        match self.now() {
            Some(now) => Duration::from_micros(moment.micros_since(now)),
            None => Duration::ZERO,
        }
    }
}
