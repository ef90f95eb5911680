//! The one place where this crate reads the process's clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use longhaul_domain::{Clock, Timestamp};

/// The machine's time, made monotonic. After the clock is set back, the time advances by the
/// elapsed time until the clock has caught up.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
    /// The largest lead of the clock over the time since the start, in microseconds.
    lead: AtomicI64,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            lead: AtomicI64::new(i64::MIN),
        }
    }
}

impl SystemClock {
    fn reading(&self, clock: i64, passed: i64) -> i64 {
        let lead = clock - passed;
        passed + self.lead.fetch_max(lead, Ordering::Relaxed).max(lead)
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    fn now(&self) -> Timestamp {
        let micros =
            |time: std::time::Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let clock = micros(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        );

        Timestamp::from_micros(self.reading(clock, micros(self.start.elapsed())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_step_back_time_goes_on_until_the_clock_is_ahead_again() {
        let clock = SystemClock::default();
        let readings = [
            (1_000, 0),
            (1_010, 10),
            (500, 20),
            (590, 110),
            (1_990, 120),
            (1_995, 125),
        ];

        let told = readings.map(|(clock_says, passed)| clock.reading(clock_says, passed));
        assert_eq!(told, [1_000, 1_010, 1_020, 1_110, 1_990, 1_995]);
    }

    #[test]
    fn the_time_is_the_machines() {
        let clock = SystemClock::default();
        let first = clock.now();
        let second = clock.now();
        assert!(first <= second && first.as_micros() > 1_700_000_000_000_000);
    }
}
