//! How often an address has shown tokens that are none. Guessing finds nothing, but each guess would cost a read.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::problem::ApiError;

/// Failures that an address has free in each stretch of time. A client with a wrong token retries; a hundred is a storm.
const FREE: u32 = 100;
const STRETCH: Duration = Duration::from_secs(60);
/// Addresses that are counted. Past it the count starts anew.
const ADDRESSES: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<IpAddr, Count>>);

#[derive(Debug, Clone, Copy)]
struct Count {
    since: Instant,
    failures: u32,
}

impl Failures {
    /// Refuses an address that has failed too often, until its stretch ends.
    pub(super) fn check(&self, peer: IpAddr, now: Instant) -> Result<(), ApiError> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = counts
            .get(&caller_at(peer))
            .filter(|count| count.failures >= FREE)
        else {
            return Ok(());
        };
        let left = STRETCH.saturating_sub(now.duration_since(count.since));
        if left.is_zero() {
            Ok(())
        } else {
            Err(ApiError::TooManyFailures {
                seconds: left.as_secs() + 1,
            })
        }
    }

    pub(super) fn note(&self, peer: IpAddr, now: Instant) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= ADDRESSES {
            counts.clear();
        }
        let count = counts.entry(caller_at(peer)).or_insert(Count {
            since: now,
            failures: 0,
        });
        if now.duration_since(count.since) >= STRETCH {
            *count = Count {
                since: now,
                failures: 0,
            };
        }
        count.failures = count.failures.saturating_add(1);
    }
}

/// Who is counted as one. Whoever has an IPv6 address has a network of 64 bits of them.
fn caller_at(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_one_network_are_one_caller() {
        let (failures, now) = (Failures::default(), Instant::now());
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        for n in 0..FREE {
            failures.note(at(&format!("fd00::1:{n:x}")), now);
        }
        assert!(failures.check(at("fd00::2"), now).is_err());
        assert!(failures.check(at("fd00:0:0:1::2"), now).is_ok());
    }

    #[test]
    fn an_address_that_fails_too_often_waits_and_others_do_not() {
        let (failures, now) = (Failures::default(), Instant::now());
        let [one, two] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        for _ in 0..FREE {
            assert!(failures.check(one, now).is_ok());
            failures.note(one, now);
        }
        assert!(matches!(
            failures.check(one, now),
            Err(ApiError::TooManyFailures { seconds: 1..=61 })
        ));
        assert!(failures.check(two, now).is_ok());
        assert!(failures.check(one, now + STRETCH).is_ok());
        failures.note(one, now + STRETCH);
        assert!(
            failures.check(one, now + STRETCH).is_ok(),
            "the count starts anew"
        );
    }
}
