//! How long to wait before the next attempt.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{bounds, error::Invalid, time::millis};

/// Exponential backoff with jitter and a cap. The number of attempts is a field of the task.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RetryPolicy {
    /// The wait after the first failure, in milliseconds.
    pub initial_ms: u64,
    /// What each further failure multiplies the wait by.
    pub factor: f64,
    /// The random share of the wait, so that failed tasks do not return at the same time. It
    /// lengthens no wait beyond the longest one.
    pub jitter: f64,
    /// The longest wait, in milliseconds.
    pub max_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            initial_ms: 2_000,
            factor: 2.0,
            jitter: 0.2,
            max_ms: 3_600_000,
        }
    }
}

impl RetryPolicy {
    /// Waits `initial` after the first failure and twice as long after each further one, up to
    /// `most`.
    pub fn backoff(initial: Duration, most: Duration) -> Self {
        Self {
            initial_ms: millis(initial),
            max_ms: millis(most),
            ..Self::default()
        }
    }

    /// The wait before the retry that follows `failures` counted failures (1 for the first), in
    /// milliseconds. `random` is a fresh number from 0 to 1.
    pub fn delay_ms(&self, failures: u32, random: f64) -> u64 {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let most = self.max_ms as f64;
        let plain = (self.initial_ms as f64 * self.factor.powi(exponent)).min(most);

        // The range is capped and not the wait drawn from it: otherwise half of the tasks at the
        // cap would wait exactly as long and return together.
        let shortest = plain * (1.0 - self.jitter);
        let longest = (plain * (1.0 + self.jitter)).min(most);
        (shortest + (longest - shortest) * random).max(0.0) as u64
    }

    /// Refuses waits that shrink or exceed their bound, and jitter of more than the wait itself.
    pub fn check(&self) -> Result<(), Invalid> {
        bounds::check_duration_ms("retry.initialMs", self.initial_ms)?;
        bounds::check_duration_ms("retry.maxMs", self.max_ms)?;
        if !(1.0..=100.0).contains(&self.factor) {
            return Err(Invalid::new(
                "retry.factor",
                format!("is {}", self.factor),
                "1 to 100",
            ));
        }

        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(Invalid::new(
                "retry.jitter",
                format!("is {}", self.jitter),
                "0 to 1",
            ));
        }

        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_from_two_seconds_and_stops_at_an_hour() {
        let policy = RetryPolicy {
            jitter: 0.0,
            ..RetryPolicy::default()
        };
        let waits: Vec<u64> = [1, 2, 3, 12, 4_000_000]
            .iter()
            .map(|n| policy.delay_ms(*n, 0.5))
            .collect();

        assert_eq!(waits, [2_000, 4_000, 8_000, 3_600_000, 3_600_000]);
    }

    #[test]
    fn a_backoff_keeps_the_usual_factor_and_jitter() {
        let policy = RetryPolicy::backoff(Duration::from_millis(5), Duration::from_millis(8));
        let waits: Vec<u64> = (1..4)
            .map(|failures| policy.delay_ms(failures, 0.5))
            .collect();
        assert_eq!(waits, [5, 7, 7]);
        assert_eq!(policy.delay_ms(1, 0.0), 4);
        assert_eq!(policy.delay_ms(9, 1.0), 8);
    }

    #[test]
    fn waits_at_the_cap_are_spread_below_it() {
        let policy = RetryPolicy::default();
        let wait = |random| policy.delay_ms(40, random);
        assert_eq!(
            [wait(0.0), wait(0.5), wait(0.75), wait(1.0)],
            [2_880_000, 3_240_000, 3_420_000, 3_600_000]
        );
    }

    #[test]
    fn jitter_varies_the_wait_by_a_fifth_both_ways() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay_ms(1, 0.0), 1_600);
        assert_eq!(policy.delay_ms(1, 1.0), 2_400);
    }

    #[test]
    fn a_policy_that_shrinks_is_refused_by_field() {
        let refused = RetryPolicy {
            factor: 0.5,
            ..RetryPolicy::default()
        }
        .check()
        .unwrap_err();
        assert_eq!(refused.field, "retry.factor");
        assert!(
            RetryPolicy {
                factor: f64::NAN,
                ..RetryPolicy::default()
            }
            .check()
            .is_err()
        );
    }
}
