//! A clock that tests move forward. It never gives the same time twice and never goes back, so that no test has to
//! sleep and no two changes of one store carry the same time by accident.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_domain::{Clock, Timestamp};

/// The system's time plus an offset that tests raise. Clones share the offset.
#[derive(Debug, Clone, Default)]
pub struct TestClock {
    offset_micros: Arc<AtomicI64>,
    last_micros: Arc<AtomicI64>,
    /// Where a clock that does not follow the system's was started.
    started_at: Option<i64>,
}

impl TestClock {
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock that starts at the system's time and then moves only as it is told, and by a microsecond with each
    /// reading: what is due does not depend on how fast the machine is.
    pub fn by_hand() -> Self {
        Self { started_at: Some(system_micros()), ..Self::default() }
    }

    /// Moves the clock forward, by no less than it is told.
    pub fn advance_ms(&self, ms: u64) {
        let micros = i64::try_from(ms).expect("tests move the clock by less than the age of the universe") * 1_000;
        self.offset_micros.fetch_add(micros, Ordering::SeqCst);
        // The last reading may be ahead of the system's clock by some microseconds, which must not be lost.
        self.last_micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// The offset in microseconds, for stores that go by a server's clock: they add it to what the server says.
    pub fn offset(&self) -> Arc<AtomicI64> {
        Arc::clone(&self.offset_micros)
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let told = self.started_at.unwrap_or_else(system_micros) + self.offset_micros.load(Ordering::SeqCst);
        let step = |last: i64| Some(told.max(last + 1));
        let last = self.last_micros.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step);
        Timestamp::from_micros(told.max(last.unwrap_or_default() + 1))
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place of the testkit that reads the system's clock")]
fn system_micros() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("the system's clock is after 1970");
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
    fn a_clock_by_hand_moves_as_it_is_told_and_not_with_the_system() {
        let clock = TestClock::by_hand();
        let started_at = clock.now();
        // The system's clock would tell of more or less than a microsecond for each of so many readings.
        let readings: Vec<Timestamp> = (0..100_000).map(|_| clock.now()).collect();
        assert_eq!(readings[99_999].micros_since(started_at), 100_000);
        clock.advance_ms(5);
        assert_eq!(clock.now().micros_since(started_at), 105_001);
    }
}
