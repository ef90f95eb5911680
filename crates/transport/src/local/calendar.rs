//! The calendar of one limit: the times for which permits are booked, and the next free time.
//!
//! This is the generic cell rate algorithm with a memory of future bookings. A single number (the
//! "theoretical arrival time") is enough while permits are used in the order in which they are
//! booked. They are not when a permit counts in two limits: a slow model uses its provider's permit
//! late, and the permits that the provider's other models use before that must fit in between. This
//! code reads no clock.

use std::collections::VecDeque;

use longhaul_domain::contract::rate_limiter::Limit;

/// The most future bookings of one limit. Each waiting caller has one, and no process has so many
/// slots.
pub(super) const BOOKINGS: usize = 10_000;

/// More than any slack that it is compared with, and small enough that a sum does not overflow.
const UNLIMITED: i128 = i128::MAX / 4;

/// Times are microseconds. Inside, they are multiplied by the limit's permits, so that the interval
/// between two permits is a whole number and rounding errors do not add up.
#[derive(Debug)]
pub(super) struct Calendar {
    permits: i128,
    /// The interval between two permits.
    interval: i128,
    /// How far permits may run ahead of an even flow.
    tolerance: i128,
    /// When an even flow would pass the next permit, after all that have been used.
    even: i128,
    /// The times of the permits that are booked and not used yet, in order.
    booked: VecDeque<i64>,
}

impl Calendar {
    pub(super) fn new(limit: Limit) -> Self {
        let permits = i128::from(limit.permits);
        let interval = i128::from(limit.per_ms) * 1_000;
        Self {
            permits,
            interval,
            // Times are whole microseconds. A permit passes in the microsecond in which its time
            // lies, so that rounding does not slow down an even flow.
            tolerance: interval * i128::from(limit.burst - 1) + permits - 1,
            even: i128::MIN / 4,
            booked: VecDeque::new(),
        }
    }

    /// Counts bookings for a time up to `now` as used.
    pub(super) fn settle(&mut self, now: i64) {
        while let Some(at) = self.booked.pop_front_if(|at| *at <= now) {
            self.even = self.even_after(self.even, at);
        }
    }

    /// Whether all permits are available. An idle calendar is equal to a new one.
    pub(super) fn is_idle(&self, now: i64) -> bool {
        self.booked.is_empty() && self.even <= self.scaled(now)
    }

    pub(super) fn is_full(&self) -> bool {
        self.booked.len() >= BOOKINGS
    }

    /// The first time from `from` on for which a permit can be booked without delaying one that is
    /// booked already.
    pub(super) fn earliest(&self, from: i64) -> i64 {
        let evens = self.evens();
        let slack = self.slack(&evens);
        let mut previous = from;

        for (index, &at) in self.booked.iter().enumerate() {
            let candidate = previous.max(self.first_after(evens[index]));
            if candidate <= at && self.push_by(evens[index], candidate) <= slack[index] {
                return candidate;
            }
            previous = previous.max(at);
        }

        previous.max(self.first_after(evens[self.booked.len()]))
    }

    /// Books a permit for a time that [`Self::earliest`] has found.
    pub(super) fn book(&mut self, at: i64) {
        let index = self.booked.partition_point(|booked| *booked <= at);
        self.booked.insert(index, at);
    }

    fn scaled(&self, micros: i64) -> i128 {
        i128::from(micros) * self.permits
    }

    fn even_after(&self, even: i128, at: i64) -> i128 {
        even.max(self.scaled(at)) + self.interval
    }

    /// The first microsecond at which a permit may pass when the flow stands at `even`.
    fn first_after(&self, even: i128) -> i64 {
        let at = even - self.tolerance;
        let round_up = i128::from(at.rem_euclid(self.permits) > 0);
        let saturated = if at < 0 { i64::MIN } else { i64::MAX };

        i64::try_from(at.div_euclid(self.permits) + round_up).unwrap_or(saturated)
    }

    /// By how much one more permit at `at` moves the flow that stands at `even`.
    fn push_by(&self, even: i128, at: i64) -> i128 {
        self.even_after(even, at) - even
    }

    /// Where the flow stands before each booking, and after the last.
    fn evens(&self) -> Vec<i128> {
        let mut evens = Vec::with_capacity(self.booked.len() + 1);
        evens.push(self.even);

        let mut even = self.even;
        for &at in &self.booked {
            even = self.even_after(even, at);
            evens.push(even);
        }

        evens
    }

    /// By how much the flow may be pushed before each booking without moving it or a later one. A
    /// booking that lies after the flow absorbs a part of the push.
    fn slack(&self, evens: &[i128]) -> Vec<i128> {
        let mut slack = vec![UNLIMITED; self.booked.len()];
        let mut later = UNLIMITED;
        for (index, &at) in self.booked.iter().enumerate().rev() {
            let lead = self.scaled(at) - evens[index];
            later = (lead + self.tolerance).min(lead.max(0) + later);
            slack[index] = later;
        }

        slack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn calendar(permits: u32, per_ms: u64, burst: u32) -> Calendar {
        Calendar::new(Limit {
            permits,
            per_ms,
            burst,
        })
    }

    fn book_earliest(calendar: &mut Calendar, from: i64) -> i64 {
        let at = calendar.earliest(from);
        calendar.book(at);
        at
    }

    #[test]
    fn a_burst_passes_at_once_and_the_rest_evenly() {
        let mut calendar = calendar(2, 1_000, 3);
        let times = [(); 6].map(|()| book_earliest(&mut calendar, SECOND));

        let later = |halves: i64| SECOND + halves * SECOND / 2;
        assert_eq!(
            times,
            [SECOND, SECOND, SECOND, later(1), later(2), later(3)]
        );
    }

    #[test]
    fn an_interval_with_a_fraction_of_a_microsecond_does_not_drift() {
        let mut calendar = calendar(3, 1_000, 1);
        let times: Vec<i64> = (0..=3_000)
            .map(|_| book_earliest(&mut calendar, 0))
            .collect();

        assert_eq!((times[1], times[2], times[3]), (333_333, 666_666, SECOND));
        assert_eq!(times[3_000], 1_000 * SECOND);
    }

    #[test]
    fn earlier_permits_fit_before_a_booking_far_ahead_without_moving_it() {
        let mut calendar = calendar(1, 1_000, 1);
        calendar.book(10 * SECOND);
        let times: Vec<i64> = (0..11)
            .map(|_| book_earliest(&mut calendar, SECOND / 2))
            .collect();

        let expected: Vec<i64> = (0..9).map(|n| n * SECOND + SECOND / 2).collect();
        assert_eq!(times[..9], expected);
        // None fits between 8.5 s and 10 s with a second's distance from both.
        assert_eq!(times[9..], [11 * SECOND, 12 * SECOND]);
    }

    /// The plain definition: the flow of all bookings in order.
    fn conforms(calendar: &Calendar, booked: &[i64]) -> bool {
        let mut even = i128::MIN / 4;
        booked.iter().all(|&at| {
            let fits = calendar.scaled(at) >= even - calendar.tolerance;
            even = calendar.even_after(even, at);
            fits
        })
    }

    #[test]
    fn the_earliest_time_is_the_one_that_trying_every_time_finds() {
        for seed in 0..68_u64 {
            let mut calendar = calendar(30 + (seed % 17) as u32, 1, 1 + (seed % 4) as u32);
            let mut all = Vec::<i64>::new();
            let mut state = seed;
            let mut now = 0;

            for _ in 0..40 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                now += (state >> 40) as i64 % 30;
                calendar.settle(now);

                let from = now + (state >> 50) as i64 % 150;
                let found = calendar.earliest(from);
                let with = |at: i64| {
                    let mut with = all.clone();
                    with.push(at);
                    with.sort_unstable();
                    with
                };

                let by_trying = (from..).find(|at| conforms(&calendar, &with(*at))).unwrap();
                assert_eq!(found, by_trying, "seed {seed}");

                all = with(found);
                calendar.book(found);
            }
        }
    }
}
