//! A clock that tests set. It never returns the same time twice and never goes back by itself, so
//! tests need not sleep and no two changes of a store have the same time by accident.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_domain::{Clock, Timestamp};

/// 2026-01-01T00:00:00Z, the start of a clock without the system's time. Any constant would do.
const FIXED_START_MICROS: i64 = 1_767_225_600_000_000;

/// The system's time or a fixed start, plus an offset that tests change. Clones share the offset.
#[derive(Debug, Clone, Default)]
pub struct TestClock {
    /// Where the clock starts when it does not follow the system's.
    fixed_start_micros: Option<i64>,
    offset_micros: Arc<AtomicI64>,
    last_micros: Arc<AtomicI64>,
}

impl TestClock {
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock that does not read the system's time. It starts at the same time in every run, each
    /// reading is one microsecond later than the one before, and [`Self::advance_ms`] moves it.
    /// Tests that use it are reproducible.
    pub fn fixed() -> Self {
        Self {
            fixed_start_micros: Some(FIXED_START_MICROS),
            ..Self::default()
        }
    }

    /// Moves the clock forward by at least this much.
    pub fn advance_ms(&self, ms: u64) {
        let micros = i64::try_from(ms)
            .expect("tests move the clock by less than the age of the universe")
            * 1_000;
        self.offset_micros.fetch_add(micros, Ordering::SeqCst);

        // The last reading may be some microseconds ahead of the system's time. It moves too, so
        // that the clock advances by no less than `ms`.
        self.last_micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Moves the clock back, as an administrator does with a clock that is ahead.
    pub fn turn_back_ms(&self, ms: u64) {
        let micros = i64::try_from(ms)
            .expect("tests move the clock by less than the age of the universe")
            * 1_000;
        self.offset_micros.fetch_sub(micros, Ordering::SeqCst);
        self.last_micros.fetch_sub(micros, Ordering::SeqCst);
    }

    /// The offset in microseconds. Stores that use a server's clock add it to the server's time.
    pub fn offset(&self) -> Arc<AtomicI64> {
        Arc::clone(&self.offset_micros)
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let start = self.fixed_start_micros.unwrap_or_else(system_micros);
        let time = start + self.offset_micros.load(Ordering::SeqCst);
        let step = |last: i64| Some(time.max(last + 1));
        let last = self
            .last_micros
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, step);
        Timestamp::from_micros(time.max(last.unwrap_or_default() + 1))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only function of the testkit that reads the system's clock"
)]
fn system_micros() -> i64 {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the system's clock is after 1970");
    i64::try_from(since_1970.as_micros()).expect("the system's clock is before the year 294441")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_advances_with_each_reading_and_by_the_given_time() {
        let clock = TestClock::new();
        let readings: Vec<Timestamp> = (0..1_000).map(|_| clock.now()).collect();
        assert!(readings.windows(2).all(|pair| pair[0] < pair[1]));

        for _ in 0..100 {
            let before = clock.now();
            clock.clone().advance_ms(3_600_000);
            assert!(clock.now().micros_since(before) > 3_600_000_000);
        }
    }

    #[test]
    fn a_fixed_clock_gives_the_same_times_in_every_run() {
        let readings = || {
            let clock = TestClock::fixed();
            let first = [clock.now(), clock.now()];
            clock.advance_ms(1);
            [first[0], first[1], clock.now()]
                .map(|reading| reading.as_micros() - FIXED_START_MICROS)
        };

        assert_eq!(readings(), [0, 1, 1_002]);
        assert_eq!(readings(), readings());
    }
}
