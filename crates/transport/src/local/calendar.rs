//! The calendar of one limit: which permits are booked for when, and when the next one can be had.
//!
//! This is the generic cell rate algorithm with a memory of what is booked ahead. A single number (the "theoretical
//! arrival time") is enough while permits are used in the order in which they are booked. They are not where a permit
//! counts in two limits: a model that is slow uses its provider's permit late, and what other models of the provider
//! use before that must fit in between. Nothing here reads a clock.

use std::collections::VecDeque;

use longhaul_domain::contract::rate_limiter::Limit;

/// Bookings ahead of time, per limit. Everyone who waits holds one, and no process has so many slots.
pub(super) const BOOKINGS: usize = 10_000;

/// More than any room that is ever compared, and far enough from the end of the numbers to be added to.
const ENDLESS: i128 = i128::MAX / 4;

/// Times are microseconds; inside, they are multiplied by the limit's permits so that the interval between two permits is
/// a whole number and no rounding adds up.
#[derive(Debug)]
pub(super) struct Calendar {
    permits: i128,
    /// Between two permits.
    interval: i128,
    /// How far ahead of an even flow permits may run.
    tolerance: i128,
    /// When an even flow would let the next permit pass, after all that have been used.
    even: i128,
    /// When the permits that are booked but not used yet will be, in order.
    ahead: VecDeque<i64>,
}

impl Calendar {
    pub(super) fn new(limit: Limit) -> Self {
        let (permits, interval) = (i128::from(limit.permits), i128::from(limit.per_ms) * 1_000);
        Self {
            permits,
            interval,
            // Times are whole microseconds. A permit passes in the microsecond in which its time lies, so that rounding does
            // not slow down an even flow.
            tolerance: interval * i128::from(limit.burst - 1) + permits - 1,
            even: i128::MIN / 4,
            ahead: VecDeque::new(),
        }
    }

    /// Takes what was booked for a time up to `now` as used.
    pub(super) fn settle(&mut self, now: i64) {
        while let Some(at) = self.ahead.pop_front_if(|at| *at <= now) {
            self.even = self.even_after(self.even, at);
        }
    }

    /// Whether all permits are there again. Then no calendar is as good as this one.
    pub(super) fn is_idle(&self, now: i64) -> bool {
        self.ahead.is_empty() && self.even <= self.scaled(now)
    }

    pub(super) fn is_full(&self) -> bool {
        self.ahead.len() >= BOOKINGS
    }

    /// The first time from `from` on for which a permit can be booked without taking one that is booked already.
    pub(super) fn earliest(&self, from: i64) -> i64 {
        let evens = self.evens();
        let rooms = self.rooms(&evens);
        let mut previous = from;
        for (place, &at) in self.ahead.iter().enumerate() {
            let candidate = previous.max(self.first_after(evens[place]));
            if candidate <= at && self.push_by(evens[place], candidate) <= rooms[place] {
                return candidate;
            }
            previous = previous.max(at);
        }
        previous.max(self.first_after(evens[self.ahead.len()]))
    }

    /// Books a permit for a time that [`Self::earliest`] has found.
    pub(super) fn book(&mut self, at: i64) {
        let place = self.ahead.partition_point(|booked| *booked <= at);
        self.ahead.insert(place, at);
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
        let up = i128::from(at.rem_euclid(self.permits) > 0);
        i64::try_from(at.div_euclid(self.permits) + up).unwrap_or(if at < 0 {
            i64::MIN
        } else {
            i64::MAX
        })
    }

    /// By how much one more permit at `at` moves the flow that stands at `even`.
    fn push_by(&self, even: i128, at: i64) -> i128 {
        self.even_after(even, at) - even
    }

    /// Where the flow stands before each booking, and after the last.
    fn evens(&self) -> Vec<i128> {
        let mut evens = Vec::with_capacity(self.ahead.len() + 1);
        evens.push(self.even);
        let mut even = self.even;
        for &at in &self.ahead {
            even = self.even_after(even, at);
            evens.push(even);
        }
        evens
    }

    /// By how much the flow may be pushed before each booking so that it and all later ones can stay. A booking that
    /// lies after the flow swallows a part of the push.
    fn rooms(&self, evens: &[i128]) -> Vec<i128> {
        let mut rooms = vec![ENDLESS; self.ahead.len()];
        let mut after = ENDLESS;
        for (place, &at) in self.ahead.iter().enumerate().rev() {
            let lead = self.scaled(at) - evens[place];
            after = (lead + self.tolerance).min(lead.max(0) + after);
            rooms[place] = after;
        }
        rooms
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

    fn booked(calendar: &mut Calendar, from: i64) -> i64 {
        let at = calendar.earliest(from);
        calendar.book(at);
        at
    }

    #[test]
    fn a_burst_passes_at_once_and_the_rest_evenly() {
        let mut calendar = calendar(2, 1_000, 3);
        let times: Vec<i64> = (0..6).map(|_| booked(&mut calendar, SECOND)).collect();
        let later = |halves: i64| SECOND + halves * SECOND / 2;
        assert_eq!(
            times,
            [SECOND, SECOND, SECOND, later(1), later(2), later(3)]
        );
    }

    #[test]
    fn an_interval_that_is_no_whole_number_of_microseconds_does_not_drift() {
        let mut calendar = calendar(3, 1_000, 1);
        let times: Vec<i64> = (0..=3_000).map(|_| booked(&mut calendar, 0)).collect();
        assert_eq!((times[1], times[2], times[3]), (333_333, 666_666, SECOND));
        assert_eq!(times[3_000], 1_000 * SECOND);
    }

    #[test]
    fn a_booking_far_ahead_leaves_room_before_it_and_keeps_its_own_place() {
        let mut calendar = calendar(1, 1_000, 1);
        calendar.book(10 * SECOND);
        let times: Vec<i64> = (0..11).map(|_| booked(&mut calendar, SECOND / 2)).collect();
        let expected: Vec<i64> = (0..9).map(|n| n * SECOND + SECOND / 2).collect();
        // Between 8.5 and 10 there is no room for one that keeps a second from both.
        assert_eq!(times[..9], expected);
        assert_eq!(times[9..], [11 * SECOND, 12 * SECOND]);
    }

    /// The definition, without any cleverness: the flow of all bookings in order.
    fn conforms(calendar: &Calendar, booked: &[i64]) -> bool {
        let mut even = i128::MIN / 4;
        booked.iter().all(|&at| {
            let fits = calendar.scaled(at) >= even - calendar.tolerance;
            even = calendar.even_after(even, at);
            fits
        })
    }

    #[test]
    fn the_earliest_time_is_what_trying_every_time_would_find() {
        for seed in 0..68_u64 {
            let mut calendar = calendar(30 + (seed % 17) as u32, 1, 1 + (seed % 4) as u32);
            let (mut all, mut state, mut now) = (Vec::<i64>::new(), seed, 0);
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
