//! Gives each refused caller a time of its own to retry, at the rate at which permits come.
//!
//! A limiter answers every refused caller with the time of the next permit. All of them return
//! then, one gets the permit and the others are refused again. With ten thousand tasks that wait
//! for a provider's hundred permits a minute, each of these rounds would cost ten thousand claims.
//! The retry times here are no bookings: a caller that comes at the right time without having been
//! refused may still be first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::{
    Clock, Timestamp,
    contract::rate_limiter::{LimitRules, LimiterError, RateLimiter, Reservation},
};
use parking_lot::Mutex;

/// How far ahead the queue of a key may reach. Queued callers may be cancelled, and the others must
/// not wait longer than this for an idle provider. A caller that comes to a full queue retries
/// together with those in its second half.
const QUEUE_MS: u64 = 600_000;
/// The distance between two retries for a parked key without a limit.
const INTERVAL_MICROS_WITHOUT_LIMIT: u64 = 10_000;
/// The most queues. Keys are providers and models; if an application puts user ids into its keys,
/// some of them have no queue.
const MAX_QUEUES: usize = 10_000;

/// Another limiter, with a queue for the refused callers of each key.
#[derive(Debug)]
pub struct PacedRateLimiter {
    limiter: Arc<dyn RateLimiter>,
    rules: LimitRules,
    clock: Arc<dyn Clock>,
    /// Never held across an await.
    queues: Mutex<PermitQueues>,
    /// The keys without a limit that a warning was logged for.
    /// Look and insert are under one lock, so that a key is logged once.
    warned: Mutex<HashSet<String>>,
}

/// The queues of all keys.
#[derive(Debug, Default)]
struct PermitQueues {
    /// The retry time of the next refused caller, by key, in microseconds.
    next: HashMap<String, i64>,
}

impl PacedRateLimiter {
    /// Paces retries by these rules, which are those of the limiter.
    pub fn new(limiter: Arc<dyn RateLimiter>, rules: LimitRules, clock: Arc<dyn Clock>) -> Self {
        Self {
            limiter,
            rules,
            clock,
            queues: Mutex::default(),
            warned: Mutex::default(),
        }
    }

    /// Warns once about a key without a limit: a mistyped key would never be limited.
    fn warn_if_unlimited(&self, key: &str) {
        if self.rules.limits.is_empty() || self.rules.slowest_micros(key).is_some() {
            return;
        }

        let mut warned = self.warned.lock();
        if warned.len() < MAX_QUEUES && warned.insert(key.to_owned()) {
            tracing::warn!(
                key,
                "rate limiter: this key has no limit, though others have one; \
                 its permits are granted at once"
            );
        }
    }

    /// Whether a permit that is granted at once shows that the queue of its key is over.
    ///
    /// A caller that waits for less than the interval between two permits cannot show it: the
    /// permit may have come just in time.
    fn shows_idle(&self, key: &str, wait_ms: u64, max_wait_ms: u64) -> bool {
        let max_wait_micros = max_wait_ms.saturating_mul(1_000);
        let interval = self.rules.slowest_micros(key);
        wait_ms == 0 && interval.is_none_or(|interval| max_wait_micros >= interval)
    }

    /// When a refused caller is to retry, in place of `retry_in_ms`.
    fn queue(&self, key: &str, retry_in_ms: u64) -> u64 {
        let interval_micros = self
            .rules
            .slowest_micros(key)
            .unwrap_or(INTERVAL_MICROS_WITHOUT_LIMIT);
        let now = self.clock.now();

        // The lock makes the retry times of two callers differ.
        let mut queues = self.queues.lock();
        queues.join(key, now, retry_in_ms, interval_micros)
    }
}

impl PermitQueues {
    /// Adds a caller to the queue of a key. Returns when it is to retry, in milliseconds.
    fn join(&mut self, key: &str, now: Timestamp, retry_in_ms: u64, interval_micros: u64) -> u64 {
        if !self.has_room_for(key, now) {
            return retry_in_ms;
        }

        let first = now.plus_ms(retry_in_ms);
        let next = self.next.get(key).copied().unwrap_or(i64::MIN);
        let is_full = next > first.plus_ms(QUEUE_MS).as_micros();
        let retry_at = if is_full {
            first.plus_ms(QUEUE_MS / 2).as_micros()
        } else {
            next.max(first.as_micros())
        };

        let after = retry_at.saturating_add_unsigned(interval_micros);
        self.next.insert(key.to_owned(), after);

        retry_at.abs_diff(now.as_micros()).div_ceil(1_000)
    }

    /// Forgets the queues that are over when there are too many.
    fn has_room_for(&mut self, key: &str, now: Timestamp) -> bool {
        if self.next.len() < MAX_QUEUES || self.next.contains_key(key) {
            return true;
        }

        self.next.retain(|_, next| *next > now.as_micros());
        self.next.len() < MAX_QUEUES
    }
}

#[async_trait]
impl RateLimiter for PacedRateLimiter {
    async fn reserve(&self, key: &str, max_wait_ms: u64) -> Result<Reservation, LimiterError> {
        match self.limiter.reserve(key, max_wait_ms).await? {
            Reservation::Granted { wait_ms } => {
                self.warn_if_unlimited(key);
                if self.shows_idle(key, wait_ms, max_wait_ms) {
                    self.queues.lock().next.remove(key);
                }

                Ok(Reservation::Granted { wait_ms })
            }
            Reservation::Refused { retry_in_ms } => Ok(Reservation::Refused {
                retry_in_ms: self.queue(key, retry_in_ms),
            }),
        }
    }

    async fn park(&self, key: &str, for_ms: u64) -> Result<(), LimiterError> {
        self.limiter.park(key, for_ms).await
    }

    async fn release(&self, key: &str) -> Result<(), LimiterError> {
        self.limiter.release(key).await
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use longhaul_domain::contract::rate_limiter::Limit;

    use super::*;
    use crate::local::MemoryRateLimiter;

    const MINUTE_MS: u64 = 60_000;
    const GRANTED: Result<Reservation, LimiterError> = Ok(Reservation::Granted { wait_ms: 0 });

    #[derive(Debug)]
    struct SettableClock(Mutex<i64>);

    impl SettableClock {
        fn advance_ms(&self, ms: u64) {
            *self.0.lock() += i64::try_from(ms).unwrap() * 1_000;
        }
    }

    impl Clock for SettableClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(*self.0.lock())
        }
    }

    fn limiter(rules: LimitRules) -> (Arc<SettableClock>, PacedRateLimiter) {
        let clock = Arc::new(SettableClock(Mutex::new(1_000_000)));
        let inner = MemoryRateLimiter::new(Arc::clone(&clock) as _, rules.clone()).unwrap();
        let paced = PacedRateLimiter::new(Arc::new(inner), rules, Arc::clone(&clock) as _);
        (clock, paced)
    }

    /// Asserts that the key is refused. Returns when to retry.
    async fn refused(limiter: &PacedRateLimiter, key: &str) -> u64 {
        match limiter.reserve(key, 0).await.unwrap() {
            Reservation::Refused { retry_in_ms } => retry_in_ms,
            granted @ Reservation::Granted { .. } => panic!("{key} is refused, not {granted:?}"),
        }
    }

    #[tokio::test]
    async fn each_refused_caller_retries_when_another_permit_comes() {
        let (_, limiter) = limiter(
            LimitRules::default()
                .limit("p/a", Limit::per_minute(6))
                .limit("p", Limit::per_minute(60)),
        );

        assert_eq!(limiter.reserve("p/a", 0).await, GRANTED);
        for caller in 1..=5 {
            assert_eq!(refused(&limiter, "p/a").await, caller * 10_000);
        }

        assert_eq!(
            limiter.reserve("p/b", 1_000).await,
            Ok(Reservation::Granted { wait_ms: 1_000 }),
            "another model has a queue of its own"
        );
    }

    /// As in a worker with few slots: a refused caller returns when its retry is due.
    #[tokio::test]
    async fn a_thousand_waiting_callers_ask_a_few_times_each_and_no_permit_is_lost() {
        let (clock, limiter) =
            limiter(LimitRules::default().limit("p", Limit::per_minute(100).burst(5)));
        let start = clock.now();
        let mut waiting: BinaryHeap<_> = (0..1_000).map(|task| Reverse((0, task))).collect();
        let mut requests = 0;
        let mut last_ms = 0;

        while let Some(Reverse((due_ms, task))) = waiting.pop() {
            let now_ms = clock.now().micros_since(start) / 1_000;
            clock.advance_ms(u64::saturating_sub(due_ms, now_ms));
            requests += 1;

            match limiter.reserve("p", 10_000).await.unwrap() {
                Reservation::Granted { wait_ms } => {
                    last_ms = last_ms.max(due_ms.max(now_ms) + wait_ms);
                }
                Reservation::Refused { retry_in_ms } => {
                    waiting.push(Reverse((due_ms.max(now_ms) + retry_in_ms, task)));
                }
            }
        }

        assert!(requests < 3_000, "{requests} requests");
        assert!(
            (597_000..=600_000).contains(&last_ms),
            "a thousand permits of a hundred a minute take {last_ms} ms"
        );
    }

    #[tokio::test]
    async fn callers_of_a_parked_key_retry_one_by_one_after_its_time() {
        let (clock, limiter) = limiter(LimitRules::default());
        limiter.park("free", MINUTE_MS).await.unwrap();
        for caller in 0..5 {
            assert_eq!(refused(&limiter, "free").await, MINUTE_MS + caller * 10);
        }

        clock.advance_ms(MINUTE_MS);
        assert_eq!(limiter.reserve("free", 0).await, GRANTED, "the probe");
        assert_eq!(refused(&limiter, "free").await, 1_000);
        assert_eq!(refused(&limiter, "free").await, 1_010);

        limiter.release("free").await.unwrap();
        assert_eq!(limiter.reserve("free", 0).await, GRANTED);
    }

    #[tokio::test]
    async fn a_queue_whose_callers_are_gone_is_forgotten() {
        let (clock, limiter) = limiter(LimitRules::default().limit("p", Limit::per_minute(1)));
        assert_eq!(limiter.reserve("p", 0).await, GRANTED);
        for caller in 1..=11 {
            assert_eq!(refused(&limiter, "p").await, caller * MINUTE_MS);
        }

        for caller in 6..=11 {
            let retry_in_ms = refused(&limiter, "p").await;
            assert_eq!(
                retry_in_ms,
                caller * MINUTE_MS,
                "the queue is full: the caller joins its second half"
            );
        }

        // All of them are cancelled.
        clock.advance_ms(2 * MINUTE_MS);
        assert_eq!(limiter.reserve("p", MINUTE_MS).await, GRANTED);
        assert_eq!(refused(&limiter, "p").await, MINUTE_MS);
    }

    #[tokio::test]
    async fn a_permit_that_comes_just_in_time_does_not_clear_the_queue() {
        let (clock, limiter) = limiter(LimitRules::default().limit("p", Limit::per_minute(1)));
        assert_eq!(limiter.reserve("p", 0).await, GRANTED);
        assert_eq!(refused(&limiter, "p").await, MINUTE_MS);
        assert_eq!(refused(&limiter, "p").await, 2 * MINUTE_MS);

        clock.advance_ms(MINUTE_MS);
        assert_eq!(
            limiter.reserve("p", 0).await,
            GRANTED,
            "the first of the two"
        );
        assert_eq!(
            refused(&limiter, "p").await,
            2 * MINUTE_MS,
            "behind the second"
        );
    }

    #[tokio::test]
    async fn queues_that_are_over_are_forgotten() {
        let (clock, limiter) = limiter(LimitRules {
            default: Some(Limit::per_second(1)),
            ..LimitRules::default()
        });
        for number in 0..3 * MAX_QUEUES {
            for _ in 0..2 {
                limiter.reserve(&format!("user-{number}"), 0).await.unwrap();
            }
            clock.advance_ms(1_000);
        }

        assert!(limiter.queues.lock().next.len() <= MAX_QUEUES);
    }
}
