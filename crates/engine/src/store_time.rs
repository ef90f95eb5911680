//! What time it is in the store, as far as a process knows without asking.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use longhaul_domain::Timestamp;
use tokio::time::Instant;

/// The store's clock, carried on from the last time that it was told. Good for hints, never for decisions about a task.
#[derive(Debug, Default)]
pub struct StoreTime {
    told: Mutex<Option<(Timestamp, Instant)>>,
}

impl StoreTime {
    /// The store has just said that it is `now` there.
    pub fn note(&self, now: Timestamp) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Instant::now()));
    }

    /// What time it is there now; nothing before it was first told.
    pub fn now(&self) -> Option<Timestamp> {
        let (then, at) = (*self.told.lock().unwrap_or_else(PoisonError::into_inner))?;
        Some(then.plus_ms(u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long until `moment`; nothing when it has passed, or when nobody knows the time.
    pub fn until(&self, moment: Timestamp) -> Duration {
        self.now().map_or(Duration::ZERO, |now| {
            Duration::from_micros(moment.micros_since(now))
        })
    }
}
