//! The rate limiter of one process.
//!
//! Each limit has a calendar. A permit is booked in all calendars that it counts in, for the first moment that suits all
//! of them, or in none. Whoever is told to wait keeps the place, also when the key is parked in the meantime: what was
//! handed out cannot be called back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use longhaul_domain::{
    Clock, Invalid, Timestamp, bounds,
    contract::rate_limiter::{
        Limit, LimitRules, LimiterError, RateLimiter, Reservation, provider_of,
    },
};

use super::calendar::Calendar;

/// Keys with permits in use, and keys that are parked: each at most so many. Keys are providers and models, of which
/// nobody has thousands; somebody who puts user ids into keys must not fill the memory.
const KEYS: usize = 10_000;
/// A probe that is neither released nor parked for so long is taken as lost, and the key as open.
pub(crate) const PROBE_SILENCE_MS: u64 = 30_000;
/// Who is refused because of a probe asks again this soon: most calls have answered by then.
pub(crate) const PROBE_RETRY_MS: u64 = 1_000;
/// A parked key that nobody has asked for this long after its time is forgotten.
pub(crate) const PARK_MEMORY_MS: u64 = 3_600_000;
/// Keys below which nobody looks for what can be forgotten.
const FEW_KEYS: usize = 64;

/// Limits of one process, by the clock that is passed in.
#[derive(Debug)]
pub struct MemoryRateLimiter {
    clock: Arc<dyn Clock>,
    rules: LimitRules,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The latest time that was read, so that a clock that steps back does no harm.
    now: i64,
    calendars: HashMap<String, Calendar>,
    parked: HashMap<String, Parked>,
    /// How many calendars there may be before idle ones are looked for.
    sweep_at: usize,
}

#[derive(Debug)]
struct Parked {
    until: i64,
    /// When the probe that was let through is taken as lost.
    probe_lost_at: Option<i64>,
}

impl MemoryRateLimiter {
    /// A limiter in which every key has all its permits.
    pub fn new(clock: Arc<dyn Clock>, rules: LimitRules) -> Result<Self, Invalid> {
        rules.check()?;
        Ok(Self {
            clock,
            rules,
            state: Mutex::default(),
        })
    }

    /// Keys that the limiter remembers anything of. For watching its memory.
    pub fn remembered_keys(&self) -> usize {
        let state = self.state();
        state.calendars.len() + state.parked.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now = state.now.max(self.clock.now().as_micros());
        state
    }
}

#[async_trait]
impl RateLimiter for MemoryRateLimiter {
    async fn reserve(&self, key: &str, max_wait_ms: u64) -> Result<Reservation, LimiterError> {
        check_key(key)?;
        let mut state = self.state();
        if let Some(retry_in_ms) = state.parked_for_ms(key) {
            return Ok(Reservation::Refused { retry_in_ms });
        }
        let limits = self.rules.limits_of(key);
        let reservation = state.book(&limits, max_wait_ms)?;
        if let Reservation::Granted { wait_ms } = reservation {
            state.send_probe(key, wait_ms);
        }
        Ok(reservation)
    }

    async fn park(&self, key: &str, for_ms: u64) -> Result<(), LimiterError> {
        check_key(key)?;
        let mut state = self.state();
        let until = Timestamp::from_micros(state.now)
            .plus_ms(for_ms.min(bounds::DURATION_MS))
            .as_micros();
        if let Some(parked) = state.parked.get_mut(key) {
            // Of two answers "too many", the one that asks for more patience counts.
            *parked = Parked {
                until: parked.until.max(until),
                probe_lost_at: None,
            };
            return Ok(());
        }
        state.make_room_for_parked()?;
        state.parked.insert(
            key.to_owned(),
            Parked {
                until,
                probe_lost_at: None,
            },
        );
        Ok(())
    }

    async fn release(&self, key: &str) -> Result<(), LimiterError> {
        check_key(key)?;
        let mut state = self.state();
        let now = state.now;
        // A model that answers shows that its provider does.
        for name in names_of(key) {
            if state
                .parked
                .get(name)
                .is_some_and(|parked| parked.until <= now)
            {
                state.parked.remove(name);
            }
        }
        Ok(())
    }
}

impl State {
    /// How long the key is closed yet, or nothing when a permit may be booked.
    fn parked_for_ms(&mut self, key: &str) -> Option<u64> {
        let now = self.now;
        let mut longest = None;
        for name in names_of(key) {
            match self.parked.get(name) {
                None => {}
                Some(parked) if parked.is_over(now) => {
                    self.parked.remove(name);
                }
                Some(parked) => longest = longest.max(parked.closed_for_ms(now)),
            }
        }
        longest
    }

    /// Whoever gets the first permit after a key's time is its probe.
    fn send_probe(&mut self, key: &str, wait_ms: u64) {
        let lost_at = Timestamp::from_micros(self.now)
            .plus_ms(wait_ms)
            .plus_ms(PROBE_SILENCE_MS)
            .as_micros();
        for name in names_of(key) {
            if let Some(parked) = self.parked.get_mut(name) {
                parked.probe_lost_at = Some(lost_at);
            }
        }
    }

    /// Books one permit in all of the limits, or in none.
    fn book(
        &mut self,
        limits: &[(&str, Limit)],
        max_wait_ms: u64,
    ) -> Result<Reservation, LimiterError> {
        let now = self.now;
        // Once and first: to make room for one must not remove another that is empty because it is new.
        self.make_room_for_calendars(limits)?;
        for (name, limit) in limits {
            self.calendars
                .entry((*name).to_owned())
                .or_insert_with(|| Calendar::new(*limit))
                .settle(now);
        }
        let at = self.earliest_in_all(limits);
        let wait_ms = at.abs_diff(now).div_ceil(1_000);
        if limits
            .iter()
            .any(|(name, _)| self.calendars.get(*name).is_some_and(Calendar::is_full))
        {
            return Ok(Reservation::Refused {
                retry_in_ms: wait_ms.max(1),
            });
        }
        if wait_ms > max_wait_ms {
            // Then the wait that is left is one that the caller accepts.
            return Ok(Reservation::Refused {
                retry_in_ms: wait_ms - max_wait_ms,
            });
        }
        for (name, _) in limits {
            if let Some(calendar) = self.calendars.get_mut(*name) {
                calendar.book(at);
            }
        }
        Ok(Reservation::Granted { wait_ms })
    }

    /// Each calendar moves the time on until none does.
    fn earliest_in_all(&self, limits: &[(&str, Limit)]) -> i64 {
        let calendars: Vec<&Calendar> = limits
            .iter()
            .filter_map(|(name, _)| self.calendars.get(*name))
            .collect();
        let mut at = self.now;
        loop {
            let later = calendars
                .iter()
                .fold(at, |at, calendar| calendar.earliest(at));
            if later == at {
                return at;
            }
            at = later;
        }
    }

    /// Idle calendars go when their number has doubled, so that looking for them costs little per key.
    fn make_room_for_calendars(&mut self, limits: &[(&str, Limit)]) -> Result<(), LimiterError> {
        let missing = |calendars: &HashMap<String, Calendar>| {
            limits
                .iter()
                .filter(|(name, _)| !calendars.contains_key(*name))
                .count()
        };
        let new = missing(&self.calendars);
        if new == 0 || self.calendars.len() + new <= self.sweep_at.max(FEW_KEYS) {
            return Ok(());
        }
        let now = self.now;
        self.calendars.retain(|_, calendar| {
            calendar.settle(now);
            !calendar.is_idle(now)
        });
        self.sweep_at = (self.calendars.len() * 2).min(KEYS);
        check_number_of_keys(self.calendars.len() + missing(&self.calendars))
    }

    fn make_room_for_parked(&mut self) -> Result<(), LimiterError> {
        if self.parked.len() < FEW_KEYS {
            return Ok(());
        }
        let now = self.now;
        self.parked.retain(|_, parked| !parked.is_over(now));
        check_number_of_keys(self.parked.len() + 1)
    }
}

impl Parked {
    /// Whether the probe, or everyone, has kept silent for so long that the key is open again.
    fn is_over(&self, now: i64) -> bool {
        let forgotten_at = Timestamp::from_micros(self.until)
            .plus_ms(PARK_MEMORY_MS)
            .as_micros();
        self.probe_lost_at.unwrap_or(forgotten_at) <= now
    }

    /// Nothing when the time is over and nobody has been sent to probe.
    fn closed_for_ms(&self, now: i64) -> Option<u64> {
        let ms_until = |at: i64| at.abs_diff(now).div_ceil(1_000);
        match self.probe_lost_at {
            _ if now < self.until => Some(ms_until(self.until)),
            Some(lost_at) => Some(ms_until(lost_at).min(PROBE_RETRY_MS)),
            None => None,
        }
    }
}

/// The names under which a key can be parked: its own and its provider's.
pub(crate) fn names_of(key: &str) -> impl Iterator<Item = &str> {
    std::iter::once(key).chain(provider_of(key))
}

pub(crate) fn check_key(key: &str) -> Result<(), LimiterError> {
    bounds::check_name("key", key).map_err(|invalid| LimiterError(invalid.to_string()))
}

fn check_number_of_keys(keys: usize) -> Result<(), LimiterError> {
    if keys <= KEYS {
        return Ok(());
    }
    Err(LimiterError(format!(
        "{KEYS} keys are in use; a key names a provider or a model, not a user or a task"
    )))
}
