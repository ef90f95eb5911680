//! The one place where this crate reads the process's clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_domain::{Clock, Timestamp};

/// The machine's time, which never goes back: a step back of the clock stands still here until it is made up.
#[derive(Debug, Default)]
pub struct SystemClock {
    last: AtomicI64,
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let micros = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(self.last.fetch_max(micros, Ordering::Relaxed).max(micros))
    }
}
