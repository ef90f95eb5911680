//! A clock that tests move. By itself it never gives the same time twice and never goes back, so that no test has to
//! sleep and no two changes of one store carry the same time by accident.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_domain::{Clock, Timestamp};

/// 2026-01-01T00:00:00Z: where a clock without the system's time starts. Any moment does, as long as it is always this.
const FIXED_START_MICROS: i64 = 1_767_225_600_000_000;

/// The system's time, or a fixed moment, plus an offset that tests raise. Clones share the offset.
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

    /// A clock that knows nothing of the system's: it starts at the same moment in every run, each reading is one
    /// microsecond later than the one before, and all else is told by [`Self::advance_ms`]. What goes by it can be
    /// repeated exactly.
    pub fn fixed() -> Self {
        Self {
            fixed_start_micros: Some(FIXED_START_MICROS),
            ..Self::default()
        }
    }

    /// Moves the clock forward, by no less than it is told.
    pub fn advance_ms(&self, ms: u64) {
        let micros = i64::try_from(ms)
            .expect("tests move the clock by less than the age of the universe")
            * 1_000;
        self.offset_micros.fetch_add(micros, Ordering::SeqCst);
        // The last reading may be ahead of the system's clock by some microseconds, which must not be lost.
        self.last_micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Moves the clock back, as whoever sets one that is ahead.
    pub fn turn_back_ms(&self, ms: u64) {
        let micros = i64::try_from(ms)
            .expect("tests move the clock by less than the age of the universe")
            * 1_000;
        self.offset_micros.fetch_sub(micros, Ordering::SeqCst);
        self.last_micros.fetch_sub(micros, Ordering::SeqCst);
    }

    /// The offset in microseconds, for stores that go by a server's clock: they add it to what the server says.
    pub fn offset(&self) -> Arc<AtomicI64> {
        Arc::clone(&self.offset_micros)
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let told = self.fixed_start_micros.unwrap_or_else(system_micros)
            + self.offset_micros.load(Ordering::SeqCst);
        let step = |last: i64| Some(told.max(last + 1));
        let last = self
            .last_micros
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, step);
        Timestamp::from_micros(told.max(last.unwrap_or_default() + 1))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place of the testkit that reads the system's clock"
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
    fn the_clock_moves_on_with_each_reading_and_by_what_it_is_told() {
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
    fn a_fixed_clock_says_the_same_in_every_run() {
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
