//! Who is refused a permit comes back in line, as fast as permits come.
//!
//! A limiter tells everybody who is refused the same moment: that of the next permit. All come back then, one gets it, and
//! the others are refused again. With ten thousand tasks that wait for a provider's hundred permits a minute, each of these
//! rounds would be ten thousand claims. Here each is told a moment of its own. It is no booking: who comes at the right time
//! without having been refused may still be first.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use longhaul_domain::{
    Clock,
    contract::rate_limiter::{LimitRules, LimiterError, RateLimiter, Reservation},
};

/// How long a line may be at most: those who stand in it may be cancelled, and nobody is to wait for longer for a provider that
/// is idle. Whoever comes to a full line is put beside those in its second half.
const LINE_MS: u64 = 600_000;
/// How far apart they come back who ask for a key that is parked and has no limit.
const EVERY_MICROS_WITHOUT_LIMIT: u64 = 10_000;
/// Lines that are kept. Keys are providers and models; of who puts user ids into keys, some have no line.
const LINES: usize = 10_000;

/// Another limiter, with a line before each key.
#[derive(Debug)]
pub struct PacedRateLimiter {
    limiter: Arc<dyn RateLimiter>,
    rules: LimitRules,
    clock: Arc<dyn Clock>,
    /// The moment that the next one who is refused is told, by key.
    lines: Mutex<HashMap<String, i64>>,
    /// Keys without a limit that somebody was told of.
    unlimited: Mutex<HashSet<String>>,
}

impl PacedRateLimiter {
    /// Lines that move as fast as these rules, which are the limiter's, give permits.
    pub fn new(limiter: Arc<dyn RateLimiter>, rules: LimitRules, clock: Arc<dyn Clock>) -> Self {
        Self {
            limiter,
            rules,
            clock,
            lines: Mutex::default(),
            unlimited: Mutex::default(),
        }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key is a text in a handler, and one with a slip of the pen would never be held back.
    fn warn_if_unlimited(&self, key: &str) {
        if self.rules.limits.is_empty() || self.rules.slowest_micros(key).is_some() {
            return;
        }
        let mut told = self
            .unlimited
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if told.len() < LINES && told.insert(key.to_owned()) {
            tracing::warn!(
                key,
                "permits of a key that has no limit; there are limits of others"
            );
        }
    }

    /// When to come back instead of in `retry_in_ms`.
    fn join(&self, key: &str, retry_in_ms: u64) -> u64 {
        let every_micros = self
            .rules
            .slowest_micros(key)
            .unwrap_or(EVERY_MICROS_WITHOUT_LIMIT);
        let now = self.clock.now();
        let first = now.plus_ms(retry_in_ms);
        let mut lines = self.lines();
        if lines.len() >= LINES && !lines.contains_key(key) {
            lines.retain(|_, next| *next > now.as_micros());
            if lines.len() >= LINES {
                return retry_in_ms;
            }
        }
        let next = lines.get(key).map_or(i64::MIN, |next| *next);
        let is_full = next > first.plus_ms(LINE_MS).as_micros();
        let place = if is_full {
            first.plus_ms(LINE_MS / 2).as_micros()
        } else {
            next.max(first.as_micros())
        };
        lines.insert(key.to_owned(), place.saturating_add_unsigned(every_micros));
        place.abs_diff(now.as_micros()).div_ceil(1_000)
    }
}

#[async_trait]
impl RateLimiter for PacedRateLimiter {
    async fn reserve(&self, key: &str, max_wait_ms: u64) -> Result<Reservation, LimiterError> {
        let reservation = self.limiter.reserve(key, max_wait_ms).await?;
        Ok(match reservation {
            Reservation::Granted { wait_ms } => {
                self.warn_if_unlimited(key);
                let patience_micros = max_wait_ms.saturating_mul(1_000);
                if wait_ms == 0
                    && self
                        .rules
                        .slowest_micros(key)
                        .is_none_or(|every| patience_micros >= every)
                {
                    // Permits lie idle: whoever was in line has been served, or is gone. Who does not wait cannot tell.
                    self.lines().remove(key);
                }
                reservation
            }
            Reservation::Refused { retry_in_ms } => Reservation::Refused {
                retry_in_ms: self.join(key, retry_in_ms),
            },
        })
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
    use longhaul_domain::{Timestamp, contract::rate_limiter::Limit};

    use super::*;
    use crate::local::MemoryRateLimiter;

    const MINUTE_MS: u64 = 60_000;

    #[derive(Debug)]
    struct Settable(Mutex<i64>);

    impl Settable {
        fn advance_ms(&self, ms: u64) {
            *self.0.lock().unwrap() += i64::try_from(ms).unwrap() * 1_000;
        }
    }

    impl Clock for Settable {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(*self.0.lock().unwrap())
        }
    }

    fn limiter(rules: LimitRules) -> (Arc<Settable>, PacedRateLimiter) {
        let clock = Arc::new(Settable(Mutex::new(1_000_000)));
        let inner = MemoryRateLimiter::new(Arc::clone(&clock) as _, rules.clone()).unwrap();
        (
            Arc::clone(&clock),
            PacedRateLimiter::new(Arc::new(inner), rules, clock),
        )
    }

    async fn refused(limiter: &PacedRateLimiter, key: &str) -> u64 {
        match limiter.reserve(key, 0).await.unwrap() {
            Reservation::Refused { retry_in_ms } => retry_in_ms,
            granted @ Reservation::Granted { .. } => panic!("{key} is refused, not {granted:?}"),
        }
    }

    #[tokio::test]
    async fn each_comes_back_when_another_permit_has_come() {
        let (_, limiter) = limiter(
            LimitRules::default()
                .limit("p/a", Limit::per_minute(6))
                .limit("p", Limit::per_minute(60)),
        );
        assert_eq!(
            limiter.reserve("p/a", 0).await,
            Ok(Reservation::Granted { wait_ms: 0 })
        );
        for place in 1..=5 {
            assert_eq!(refused(&limiter, "p/a").await, place * 10_000);
        }
        assert_eq!(
            limiter.reserve("p/b", 1_000).await,
            Ok(Reservation::Granted { wait_ms: 1_000 }),
            "no line of theirs"
        );
    }

    /// As a worker with few slots has it: whoever is refused comes back when it is told to.
    #[tokio::test]
    async fn a_thousand_who_wait_for_permits_ask_a_few_times_each_and_no_permit_is_lost() {
        let (clock, limiter) =
            limiter(LimitRules::default().limit("p", Limit::per_minute(100).burst(5)));
        let start = clock.now();
        let mut waiting: std::collections::BinaryHeap<_> = (0..1_000)
            .map(|task| std::cmp::Reverse((0, task)))
            .collect();
        let (mut questions, mut last_ms) = (0, 0);
        while let Some(std::cmp::Reverse((due_ms, task))) = waiting.pop() {
            let now_ms = clock.now().micros_since(start) / 1_000;
            clock.advance_ms(u64::saturating_sub(due_ms, now_ms));
            questions += 1;
            match limiter.reserve("p", 10_000).await.unwrap() {
                Reservation::Granted { wait_ms } => {
                    last_ms = last_ms.max(due_ms.max(now_ms) + wait_ms)
                }
                Reservation::Refused { retry_in_ms } => {
                    waiting.push(std::cmp::Reverse((due_ms.max(now_ms) + retry_in_ms, task)));
                }
            }
        }
        assert!(questions < 3_000, "{questions} questions");
        assert!(
            (597_000..=600_000).contains(&last_ms),
            "a thousand permits of a hundred a minute last {last_ms} ms"
        );
    }

    #[tokio::test]
    async fn who_waits_for_a_parked_key_comes_back_after_it_one_by_one() {
        let (clock, limiter) = limiter(LimitRules::default());
        limiter.park("free", MINUTE_MS).await.unwrap();
        for place in 0..5 {
            assert_eq!(refused(&limiter, "free").await, MINUTE_MS + place * 10);
        }
        clock.advance_ms(MINUTE_MS);
        assert_eq!(
            limiter.reserve("free", 0).await,
            Ok(Reservation::Granted { wait_ms: 0 }),
            "the probe"
        );
        assert_eq!(
            [
                refused(&limiter, "free").await,
                refused(&limiter, "free").await
            ],
            [1_000, 1_010]
        );
        limiter.release("free").await.unwrap();
        assert_eq!(
            limiter.reserve("free", 0).await,
            Ok(Reservation::Granted { wait_ms: 0 })
        );
    }

    #[tokio::test]
    async fn a_line_in_which_nobody_stands_any_more_is_none() {
        let (clock, limiter) = limiter(LimitRules::default().limit("p", Limit::per_minute(1)));
        assert_eq!(
            limiter.reserve("p", 0).await,
            Ok(Reservation::Granted { wait_ms: 0 })
        );
        for place in 1..=11 {
            assert_eq!(refused(&limiter, "p").await, place * MINUTE_MS);
        }
        for place in 6..=11 {
            assert_eq!(
                refused(&limiter, "p").await,
                place * MINUTE_MS,
                "beside those in the second half"
            );
        }
        // All of them are cancelled.
        clock.advance_ms(2 * MINUTE_MS);
        assert_eq!(
            limiter.reserve("p", MINUTE_MS).await,
            Ok(Reservation::Granted { wait_ms: 0 })
        );
        assert_eq!(refused(&limiter, "p").await, MINUTE_MS);
    }

    #[tokio::test]
    async fn a_permit_that_comes_just_in_time_takes_no_line_away() {
        let (clock, limiter) = limiter(LimitRules::default().limit("p", Limit::per_minute(1)));
        assert_eq!(
            limiter.reserve("p", 0).await,
            Ok(Reservation::Granted { wait_ms: 0 })
        );
        assert_eq!(
            [refused(&limiter, "p").await, refused(&limiter, "p").await],
            [MINUTE_MS, 2 * MINUTE_MS]
        );
        clock.advance_ms(MINUTE_MS);
        assert_eq!(
            limiter.reserve("p", 0).await,
            Ok(Reservation::Granted { wait_ms: 0 }),
            "the first of them"
        );
        assert_eq!(
            refused(&limiter, "p").await,
            2 * MINUTE_MS,
            "behind the second"
        );
    }

    #[tokio::test]
    async fn lines_that_are_over_are_forgotten() {
        let (clock, limiter) = limiter(LimitRules {
            default: Some(Limit::per_second(1)),
            ..LimitRules::default()
        });
        for number in 0..3 * LINES {
            for _ in 0..2 {
                limiter.reserve(&format!("user-{number}"), 0).await.unwrap();
            }
            clock.advance_ms(1_000);
        }
        assert!(limiter.lines().len() <= LINES);
    }
}
