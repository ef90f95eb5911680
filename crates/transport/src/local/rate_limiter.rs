//! The rate limiter of one process.
//!
//! Each limit has a calendar. A permit is booked in all calendars that it counts in, for the first
//! time that suits all of them, or in none. A booking stays valid even when the key is parked
//! before it is used: a permit that was granted cannot be revoked.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::{
    Clock, Invalid, Timestamp, bounds,
    contract::rate_limiter::{
        Limit, LimitRules, LimiterError, RateLimiter, Reservation, provider_of,
    },
};
use parking_lot::{Mutex, MutexGuard};

use super::calendar::Calendar;

/// The most keys with permits in use, and the most parked keys. Keys are providers and models, of
/// which an application has far fewer; an application that puts user ids into its keys must not
/// fill the memory.
const KEYS: usize = 10_000;
/// A probe that is neither released nor parked for this long counts as lost, and the key as open.
pub(crate) const PROBE_SILENCE_MS: u64 = 30_000;
/// When a caller retries that was refused because of a probe: most calls are answered by then.
pub(crate) const PROBE_RETRY_MS: u64 = 1_000;
/// How long after its time a parked key is remembered when there is no request for it.
pub(crate) const PARK_MEMORY_MS: u64 = 3_600_000;
/// Below this number of keys the limiter does not look for idle ones.
const FEW_KEYS: usize = 64;

/// Limits of one process, by the clock that is passed in.
#[derive(Debug)]
pub struct MemoryRateLimiter {
    clock: Arc<dyn Clock>,
    rules: LimitRules,
    bookings: Mutex<Bookings>,
}

#[derive(Debug, Default)]
struct Bookings {
    /// The latest time that was read, so that a clock that steps back does no harm.
    now: i64,
    calendars: HashMap<String, Calendar>,
    parked: HashMap<String, ParkedKey>,
    /// The number of calendars at which idle ones are removed.
    sweep_at: usize,
}

#[derive(Debug)]
struct ParkedKey {
    until: i64,
    /// When the probe counts as lost; `None` while no probe is under way.
    probe_lost_at: Option<i64>,
}

impl MemoryRateLimiter {
    /// A limiter in which every key has all its permits.
    pub fn new(clock: Arc<dyn Clock>, rules: LimitRules) -> Result<Self, Invalid> {
        rules.check()?;
        Ok(Self {
            clock,
            rules,
            bookings: Mutex::default(),
        })
    }

    /// How many keys the limiter remembers. Tests watch its memory with it.
    pub fn remembered_keys(&self) -> usize {
        let bookings = self.bookings();
        bookings.calendars.len() + bookings.parked.len()
    }

    /// The bookings, brought up to the current time.
    fn bookings(&self) -> MutexGuard<'_, Bookings> {
        // The clock is read under the lock, so that time does not run backwards between callers.
        let mut bookings = self.bookings.lock();
        bookings.now = bookings.now.max(self.clock.now().as_micros());
        bookings
    }
}

#[async_trait]
impl RateLimiter for MemoryRateLimiter {
    async fn reserve(&self, key: &str, max_wait_ms: u64) -> Result<Reservation, LimiterError> {
        check_key(key)?;
        let mut bookings = self.bookings();
        if let Some(retry_in_ms) = bookings.parked_for_ms(key) {
            return Ok(Reservation::Refused { retry_in_ms });
        }

        let limits = self.rules.limits_of(key);
        let reservation = bookings.book(&limits, max_wait_ms)?;
        if let Reservation::Granted { wait_ms } = reservation {
            bookings.start_probe(key, wait_ms);
        }

        Ok(reservation)
    }

    async fn park(&self, key: &str, for_ms: u64) -> Result<(), LimiterError> {
        check_key(key)?;
        self.bookings().park(key, for_ms.min(bounds::DURATION_MS))
    }

    async fn release(&self, key: &str) -> Result<(), LimiterError> {
        check_key(key)?;
        let mut bookings = self.bookings();
        let now = bookings.now;

        // A model that answers shows that its provider does.
        for name in names_of(key) {
            if let Some(parked) = bookings.parked.get(name)
                && parked.until <= now
            {
                bookings.parked.remove(name);
            }
        }

        Ok(())
    }
}

impl Bookings {
    fn in_ms(&self, ms: u64) -> i64 {
        Timestamp::from_micros(self.now).plus_ms(ms).as_micros()
    }

    /// How much longer the key is closed; `None` when a permit may be booked.
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

    /// Closes a key for a time. When it is closed already, the longer time counts.
    fn park(&mut self, key: &str, for_ms: u64) -> Result<(), LimiterError> {
        let mut until = self.in_ms(for_ms);
        match self.parked.get(key) {
            Some(parked) => until = until.max(parked.until),
            None => self.make_room_for_parked()?,
        }

        let parked = ParkedKey {
            until,
            probe_lost_at: None,
        };
        self.parked.insert(key.to_owned(), parked);

        Ok(())
    }

    /// The first permit after a key's time is its probe.
    fn start_probe(&mut self, key: &str, wait_ms: u64) {
        let lost_at = self.in_ms(wait_ms.saturating_add(PROBE_SILENCE_MS));
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
        // Once and first: making room for one calendar must not remove another that is empty
        // because it is new.
        self.make_room_for_calendars(limits)?;
        self.settle(limits);

        let at = self.earliest_in_all(limits);
        let wait_ms = at.abs_diff(self.now).div_ceil(1_000);
        if self.calendars_of(limits).any(Calendar::is_full) {
            return Ok(Reservation::Refused {
                retry_in_ms: wait_ms.max(1),
            });
        }

        if wait_ms > max_wait_ms {
            // After this time the remaining wait is one that the caller accepts.
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

    /// Brings the calendars of these limits up to the current time, and makes those that are
    /// missing.
    fn settle(&mut self, limits: &[(&str, Limit)]) {
        for (name, limit) in limits {
            let calendar = self.calendars.entry((*name).to_owned());
            let calendar = calendar.or_insert_with(|| Calendar::new(*limit));
            calendar.settle(self.now);
        }
    }

    fn calendars_of(&self, limits: &[(&str, Limit)]) -> impl Iterator<Item = &Calendar> {
        limits
            .iter()
            .filter_map(|(name, _)| self.calendars.get(*name))
    }

    /// The first time that suits all calendars: each moves it on until none does.
    fn earliest_in_all(&self, limits: &[(&str, Limit)]) -> i64 {
        let calendars: Vec<&Calendar> = self.calendars_of(limits).collect();
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

    fn count_missing(&self, limits: &[(&str, Limit)]) -> usize {
        let missing = limits
            .iter()
            .filter(|(name, _)| !self.calendars.contains_key(*name));
        missing.count()
    }

    /// Removes idle calendars when the number of calendars has doubled, so that the search costs
    /// little per key.
    fn make_room_for_calendars(&mut self, limits: &[(&str, Limit)]) -> Result<(), LimiterError> {
        let new = self.count_missing(limits);
        if new == 0 || self.calendars.len() + new <= self.sweep_at.max(FEW_KEYS) {
            return Ok(());
        }

        let now = self.now;
        self.calendars.retain(|_, calendar| {
            calendar.settle(now);
            !calendar.is_idle(now)
        });
        self.sweep_at = (self.calendars.len() * 2).min(KEYS);

        check_number_of_keys(self.calendars.len() + self.count_missing(limits))
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

impl ParkedKey {
    /// Whether the key is open again: its probe is lost, or there was no request for long.
    fn is_over(&self, now: i64) -> bool {
        let until = Timestamp::from_micros(self.until);
        let forgotten_at = until.plus_ms(PARK_MEMORY_MS).as_micros();
        self.probe_lost_at.unwrap_or(forgotten_at) <= now
    }

    /// `None` when the time is over and no probe is under way.
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
