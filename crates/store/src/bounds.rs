//! Where each lane's claimable tasks begin, so that a claim need not walk over what is gone.
//!
//! PostgreSQL keeps the index entries of claimed tasks while any old snapshot is open, and a claim that starts
//! at the front of its lane walks over all of them. Each store handle therefore remembers how far it has come
//! and starts a little before. A task can appear before that place (handed back, moved by a person, committed late by
//! another process), so the bound is lowered by this process's own writes, dropped when a claim finds nothing,
//! and dropped every few seconds; a full scan that was slow is followed by a longer rest.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

/// The longest that a task of another process can lie unseen before a bound, if scans are fast.
const FULL_SCAN_EVERY: Duration = Duration::from_secs(2);
/// How much later than its due time a task may be committed and still be found at once.
const LATE_COMMIT_US: i64 = 50_000;
/// A claim that finds nothing looks again without bounds, but spends at most a tenth of its time so.
const REST_PER_SCAN: u32 = 10;

/// The bounds of one store handle.
#[derive(Debug, Default)]
pub(crate) struct ClaimBounds(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    due_from: HashMap<i64, i64>,
    scanned_at: Option<Instant>,
    scan_took: Duration,
}

/// A bound as `claim_tasks` takes it.
#[derive(Debug, Serialize)]
pub(crate) struct LaneBound {
    lane: i64,
    due_at: i64,
}

impl ClaimBounds {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where to start now; nothing when a full scan is due.
    pub(crate) fn current(&self) -> Vec<LaneBound> {
        let state = self.state();
        let rest = FULL_SCAN_EVERY.max(state.scan_took * 2 * REST_PER_SCAN);
        if state.scanned_at.is_none_or(|at| at.elapsed() >= rest) {
            return Vec::new();
        }
        state.due_from.iter().map(|(lane, due_at)| LaneBound { lane: *lane, due_at: *due_at }).collect()
    }

    /// Whether a claim that found nothing may look again without bounds.
    pub(crate) fn may_look_again(&self) -> bool {
        let state = self.state();
        state.scanned_at.is_none_or(|at| at.elapsed() >= state.scan_took * REST_PER_SCAN)
    }

    /// Notes that a claim without bounds took this long.
    pub(crate) fn note_full_scan(&self, took: Duration) {
        let mut state = self.state();
        state.due_from.clear();
        state.scanned_at = Some(Instant::now());
        state.scan_took = took;
    }

    /// Notes that everything in `lane` up to `due_at` was claimed.
    pub(crate) fn raise(&self, lane: i64, due_at: i64) {
        let mut state = self.state();
        let from = due_at - LATE_COMMIT_US;
        let bound = state.due_from.entry(lane).or_insert(from);
        *bound = from.max(*bound);
    }

    /// Notes that a task of `lane` is claimable from `due_at` on.
    pub(crate) fn lower(&self, lane: i64, due_at: i64) {
        if let Some(bound) = self.state().due_from.get_mut(&lane) {
            *bound = due_at.min(*bound);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_rises_with_claims_and_falls_with_returned_tasks() {
        let bounds = ClaimBounds::default();
        bounds.note_full_scan(Duration::ZERO);
        bounds.raise(1, 50 + LATE_COMMIT_US);
        bounds.raise(1, 40 + LATE_COMMIT_US);
        assert_eq!(bounds.current()[0].due_at, 50);
        bounds.lower(1, 20);
        bounds.lower(2, 20);
        assert_eq!(bounds.current().len(), 1);
        assert_eq!(bounds.current()[0].due_at, 20);
    }

    #[test]
    fn nothing_is_bounded_before_the_first_full_scan() {
        let bounds = ClaimBounds::default();
        bounds.raise(1, 50);
        assert!(bounds.current().is_empty());
        assert!(bounds.may_look_again());
    }
}
