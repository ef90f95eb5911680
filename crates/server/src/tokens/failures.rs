//! How many unknown tokens each address has presented. Guessing finds no token, but each guess
//! costs a read.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::problem::ApiError;

/// Failures of one address per [`WINDOW`]. A client with a wrong token retries; a hundred failures
/// are an attack.
const ALLOWED: u32 = 100;
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are counted. A full table is cleared.
const ADDRESSES: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct TokenFailures(Mutex<HashMap<IpAddr, Window>>);

#[derive(Debug, Clone, Copy)]
struct Window {
    since: Instant,
    failures: u32,
}

impl TokenFailures {
    /// Refuses an address with too many failures until its window ends.
    pub(super) fn check(&self, peer: IpAddr, now: Instant) -> Result<(), ApiError> {
        // Two guesses at the same moment may both pass: the bound is about costs, not about access.
        let Some(window) = self.0.lock().get(&client_of(peer)).copied() else {
            return Ok(());
        };

        let left = WINDOW.saturating_sub(now.duration_since(window.since));
        if window.failures < ALLOWED || left.is_zero() {
            return Ok(());
        }

        Err(ApiError::TooManyFailures {
            seconds: left.as_secs() + 1,
        })
    }

    pub(super) fn record(&self, peer: IpAddr, now: Instant) {
        let fresh = Window {
            since: now,
            failures: 0,
        };

        // One lock for the whole update, so that concurrent failures are all counted.
        let mut windows = self.0.lock();
        if windows.len() >= ADDRESSES {
            windows.clear();
        }

        let window = windows.entry(client_of(peer)).or_insert(fresh);
        if now.duration_since(window.since) >= WINDOW {
            *window = fresh;
        }
        window.failures = window.failures.saturating_add(1);
    }
}

/// The address to count by. A client with an IPv6 address usually has its whole /64.
fn client_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_one_ipv6_network_count_as_one_client() {
        let failures = TokenFailures::default();
        let now = Instant::now();
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        for n in 0..ALLOWED {
            failures.record(at(&format!("fd00::1:{n:x}")), now);
        }

        assert!(failures.check(at("fd00::2"), now).is_err());
        assert!(failures.check(at("fd00:0:0:1::2"), now).is_ok());
    }

    #[test]
    fn an_address_with_too_many_failures_waits_and_others_do_not() {
        let failures = TokenFailures::default();
        let now = Instant::now();
        let [one, two] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        for _ in 0..ALLOWED {
            assert!(failures.check(one, now).is_ok());
            failures.record(one, now);
        }

        assert!(matches!(
            failures.check(one, now),
            Err(ApiError::TooManyFailures { seconds: 1..=61 })
        ));
        assert!(failures.check(two, now).is_ok());

        let later = now + WINDOW;
        assert!(failures.check(one, later).is_ok());
        failures.record(one, later);
        assert!(
            failures.check(one, later).is_ok(),
            "a new window starts at zero"
        );
    }
}
