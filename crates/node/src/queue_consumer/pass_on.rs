//! How many hints of types that the node does not serve are passed on to other nodes.

use std::time::Duration;

use longhaul_domain::{Timestamp, contract::broker::Hint};
use tokio::time::Instant;

/// Hints that are passed on within a second. The dispatcher publishes hints for other tasks again,
/// less and less often, because it may be that no node serves them.
const PER_SECOND: usize = 50;
/// How long after its task became claimable a hint is passed on, in milliseconds. An older hint is
/// left to the dispatcher: no node may serve it, or its task may be gone.
const LONGEST_AGE_MS: u64 = 2_000;

/// See the module.
#[derive(Debug)]
pub(super) struct PassOnLimit {
    second_began: Instant,
    passed_on: usize,
}

impl Default for PassOnLimit {
    fn default() -> Self {
        Self {
            second_began: Instant::now(),
            passed_on: 0,
        }
    }
}

impl PassOnLimit {
    /// The hints that are passed on, at this time of the store. None if that is unknown.
    pub(super) fn select(&mut self, mut hints: Vec<Hint>, now: Option<Timestamp>) -> Vec<Hint> {
        let Some(now) = now else { return Vec::new() };
        hints.retain(|hint| {
            let claimable_since = hint.submitted_at.max(hint.due_at);
            now < claimable_since.plus_ms(LONGEST_AGE_MS)
        });
        if hints.is_empty() {
            return hints;
        }

        if self.second_began.elapsed() > Duration::from_secs(1) {
            self.second_began = Instant::now();
            self.passed_on = 0;
        }
        hints.truncate(PER_SECOND.saturating_sub(self.passed_on));
        self.passed_on += hints.len();
        hints
    }
}
