//! For how long the store has answered heartbeats without a break.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::Engine;

/// The latest unbroken run of answers; nothing before the first one. The lock is held for one copy.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth(Mutex<Option<Answering>>);

#[derive(Debug, Clone, Copy)]
struct Answering {
    since: Instant,
    last: Instant,
    /// A longer silence than this is a break.
    max_silence: Duration,
}

impl Answering {
    fn after(before: Option<Self>, now: Instant, max_silence: Duration) -> Self {
        let since = match before {
            Some(before) if now.duration_since(before.last) <= before.max_silence => before.since,
            Some(_) | None => now,
        };

        Self {
            since,
            last: now,
            max_silence,
        }
    }

    /// How long the store has answered. Zero once the silence is too long, even before the next
    /// answer ends it.
    fn lasts_for(self, now: Instant) -> Duration {
        if now.duration_since(self.last) <= self.max_silence {
            now.duration_since(self.since)
        } else {
            Duration::ZERO
        }
    }
}

impl Engine {
    /// Notes that the store has answered a heartbeat. It counts as down when the next answer takes
    /// longer than `max_silence`.
    pub fn note_store_answer(&self, max_silence: Duration) {
        let mut answering = self.store_health.0.lock();
        *answering = Some(Answering::after(*answering, Instant::now(), max_silence));
    }

    /// For how long the store has answered without a break; `None` in a process without
    /// heartbeats.
    pub fn store_answers_for(&self) -> Option<Duration> {
        let answering = *self.store_health.0.lock();
        answering.map(|answering| answering.lasts_for(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_that_is_too_long_starts_the_time_anew() {
        let start = Instant::now();
        let max_silence = Duration::from_secs(15);
        let at = |seconds| start + Duration::from_secs(seconds);

        let first = Answering::after(None, at(0), max_silence);
        let second = Answering::after(Some(first), at(15), max_silence);
        assert_eq!(second.since, start);
        assert_eq!(
            Answering::after(Some(second), at(31), max_silence).since,
            at(31)
        );
    }

    #[test]
    fn a_silence_that_is_too_long_counts_before_an_answer_ends_it() {
        let start = Instant::now();
        let max_silence = Duration::from_secs(15);
        let answering = Answering {
            since: start,
            last: start + max_silence,
            max_silence,
        };

        assert_eq!(
            answering.lasts_for(start + max_silence * 2),
            max_silence * 2
        );
        let too_late = start + max_silence * 2 + Duration::from_millis(1);
        assert_eq!(answering.lasts_for(too_late), Duration::ZERO);
    }
}
