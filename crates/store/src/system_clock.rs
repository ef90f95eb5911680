//! The one place where this crate reads the process's clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_domain::{Clock, Timestamp};

/// How much slower the time advances while it is ahead of the machine's clock.
const SLOWDOWN: i64 = 2;
/// A longer lead is logged. Time servers correct a clock by less.
const LEAD_LOGGED: Duration = Duration::from_secs(1);

/// The machine's time, made monotonic. After the clock was set back, the time is ahead of it and
/// advances at half speed until the clock has caught up. A clock that was an hour ahead for a
/// moment is followed for two hours, and not for good.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
    last: Mutex<Reading>,
}

/// The last reading that was the machine's time, and the lead at the newest reading. All are
/// microseconds.
#[derive(Debug, Clone, Copy)]
struct Reading {
    clock: i64,
    elapsed: i64,
    lead: i64,
}

impl Reading {
    const NONE: Self = Self {
        clock: i64::MIN / 2,
        elapsed: 0,
        lead: 0,
    };

    /// The time when the machine's clock shows `clock`, `elapsed` after the start.
    fn advance(&mut self, clock: i64, elapsed: i64) -> i64 {
        let slowed = self.clock + (elapsed - self.elapsed) / SLOWDOWN;
        if clock >= slowed {
            *self = Self {
                clock,
                elapsed,
                lead: 0,
            };
            return clock;
        }

        self.lead = slowed - clock;
        slowed
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            last: Mutex::new(Reading::NONE),
        }
    }
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    fn read(&self) -> (i64, Reading) {
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);

        // The clocks are read under the lock, so that no reading is older than the one before. A
        // panic cannot leave a reading half changed, so a poisoned lock is still good.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let time = last.advance(micros(clock), micros(self.start.elapsed()));
        (time, *last)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.read().0)
    }

    fn lead(&self) -> Duration {
        let (_, reading) = self.read();
        Duration::from_micros(u64::try_from(reading.lead).unwrap_or(0))
    }
}

/// Logs when a clock has got ahead of the machine's, and when it no longer is.
#[derive(Debug)]
pub(crate) struct LeadLog {
    clock: Arc<dyn Clock>,
    is_ahead: bool,
}

impl LeadLog {
    pub(crate) fn of(clock: &Arc<dyn Clock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            is_ahead: false,
        }
    }

    pub(crate) fn look(&mut self) {
        let lead = self.clock.lead();
        match self.changed(lead) {
            Some(true) => tracing::warn!(
                ?lead,
                "the machine's clock was set back, so the store's clock is ahead of it and tasks \
                 with a run time start early; it advances at half speed until the lead is gone"
            ),
            Some(false) => tracing::info!("the store's clock is the machine's again"),
            None => {}
        }
    }

    /// Whether the clock has got ahead or is no longer ahead; `None` if that is as before.
    fn changed(&mut self, lead: Duration) -> Option<bool> {
        let is_ahead = if self.is_ahead {
            !lead.is_zero()
        } else {
            lead > LEAD_LOGGED
        };
        let is_changed = is_ahead != self.is_ahead;
        self.is_ahead = is_ahead;
        is_changed.then_some(is_ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3_600 * SECOND;

    #[test]
    fn after_a_step_back_time_goes_on_until_the_clock_is_ahead_again() {
        let mut last = Reading::NONE;
        let readings = [
            (1_000, 0),
            (1_010, 10),
            (500, 20),
            (590, 110),
            (1_990, 120),
            (1_995, 125),
        ];

        let told = readings.map(|(clock, elapsed)| last.advance(clock, elapsed));
        assert_eq!(told, [1_000, 1_010, 1_015, 1_060, 1_990, 1_995]);
    }

    #[test]
    fn a_lead_of_an_hour_is_gone_after_two_hours() {
        let mut last = Reading::NONE;
        last.advance(SECOND, SECOND);
        last.advance(HOUR + 2 * SECOND, 2 * SECOND);
        let mut before = 0;

        for second in 3..2 * 3_600 + 10 {
            let clock = second * SECOND;
            let time = last.advance(clock, clock);
            assert!(time > before, "the time is monotonic");
            assert_eq!(time, clock + last.lead);
            before = time;
        }
        assert_eq!(last.lead, 0);
    }

    /// Many readings within a microsecond of each other must not stop the time.
    #[test]
    fn time_goes_on_however_often_it_is_read() {
        let mut last = Reading::NONE;
        last.advance(HOUR, 0);
        let told: Vec<i64> = (1..=1_000)
            .map(|micros| last.advance(micros, micros))
            .collect();
        assert_eq!(told.last(), Some(&(HOUR + 500)));
        assert!(told.is_sorted());
    }

    #[test]
    fn a_lead_is_logged_when_it_begins_and_when_it_ends() {
        let mut log = LeadLog::of(&(Arc::new(SystemClock::default()) as Arc<dyn Clock>));
        let seen = [500, 1_001, 900, 1_500, 1, 0, 900, 1_001];
        let told = seen.map(|ms| log.changed(Duration::from_millis(ms)));
        assert_eq!(
            told,
            [
                None,
                Some(true),
                None,
                None,
                None,
                Some(false),
                None,
                Some(true)
            ]
        );
    }

    #[test]
    fn the_time_is_the_machines() {
        let clock = SystemClock::default();
        let first = clock.now();
        let second = clock.now();
        assert!(first <= second && first.as_micros() > 1_700_000_000_000_000);
        assert_eq!(clock.lead(), Duration::ZERO);
    }
}
