//! Where the claimable tasks of each lane begin, so that claims skip the dead index entries.
//!
//! PostgreSQL and InnoDB keep the index entries of claimed tasks, at least while an old snapshot is
//! open. A claim from the front of its lane scans them all. So each store handle remembers a bound
//! per lane, the due time of its latest claim, and starts there.
//!
//! A task can appear before the bound: it was handed back, moved by a person or committed late by
//! another process. Therefore:
//!
//! - this process's own writes lower the bound;
//! - many times a second a claim starts a little before the bound;
//! - the bounds are dropped every few seconds, and when a claim finds nothing. A slow full scan
//!   makes the next one wait longer.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

/// How long another process's task can stay unseen before a bound, if scans are fast.
const FULL_SCAN_EVERY: Duration = Duration::from_secs(2);
/// A task committed at most this long after its due time is found at the next look back.
const LATE_COMMIT_US: i64 = 50_000;
/// How often a claim looks back.
const LATE_LOOK_EVERY: Duration = Duration::from_millis(20);
/// The pause after a full scan, as a multiple of its duration. Claims that find nothing spend at
/// most a tenth of the time on full scans.
const REST_PER_SCAN: u32 = 10;

/// The bounds of one store handle.
#[derive(Debug, Default)]
pub(crate) struct ClaimBounds(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    lanes: HashMap<i64, Bound>,
    scanned_at: Option<Instant>,
    scan_took: Duration,
}

/// How far a lane has been claimed.
#[derive(Debug, Clone, Copy)]
struct Bound {
    due_at: i64,
    /// When a successful claim last started before the bound.
    looked_back_at: Instant,
}

/// A bound as a parameter of `claim_tasks`.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct LaneBound {
    pub(crate) lane: i64,
    pub(crate) due_at: i64,
    /// Whether it lies before the latest claim.
    #[serde(skip)]
    looks_back: bool,
}

/// The changes to bounds that take effect when a transaction commits.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    raised: Vec<(i64, i64, bool)>,
    lowered: Vec<(i64, i64)>,
}

impl Moves {
    /// Records a task that a claim from these bounds took.
    pub(crate) fn claimed(&mut self, bounds: &[LaneBound], lane: i64, due_at: i64) {
        // Without a bound the claim started at the front.
        let looked_back = bounds
            .iter()
            .find(|bound| bound.lane == lane)
            .is_none_or(|bound| bound.looks_back);
        self.raised.push((lane, due_at, looked_back));
    }

    /// Records a task that was claimed by name. Tasks due before it may still wait; the next full
    /// scan finds them.
    pub(crate) fn claimed_by_name(&mut self, lane: i64, due_at: i64) {
        self.raised.push((lane, due_at, false));
    }

    /// Records that a task of `lane` is claimable from `due_at` on.
    pub(crate) fn requeued(&mut self, lane: i64, due_at: i64) {
        self.lowered.push((lane, due_at));
    }
}

impl ClaimBounds {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // The bounds are a hint, so a poisoned lock is still good.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bounds to start at; none when a full scan is due.
    pub(crate) fn current(&self) -> Vec<LaneBound> {
        let state = self.state();
        let rest = FULL_SCAN_EVERY.max(state.scan_took * 2 * REST_PER_SCAN);
        if state.scanned_at.is_none_or(|at| at.elapsed() >= rest) {
            return Vec::new();
        }

        let bound = |(lane, bound): (&i64, &Bound)| {
            let looks_back = bound.looked_back_at.elapsed() >= LATE_LOOK_EVERY;
            let due_at = bound.due_at - if looks_back { LATE_COMMIT_US } else { 0 };
            LaneBound {
                lane: *lane,
                due_at,
                looks_back,
            }
        };

        state.lanes.iter().map(bound).collect()
    }

    /// Whether a claim that found nothing may look again without bounds.
    pub(crate) fn may_look_again(&self) -> bool {
        let state = self.state();
        state
            .scanned_at
            .is_none_or(|at| at.elapsed() >= state.scan_took * REST_PER_SCAN)
    }

    /// Records the duration of a full scan and drops the bounds.
    pub(crate) fn note_full_scan(&self, took: Duration) {
        let mut state = self.state();
        state.lanes.clear();
        state.scanned_at = Some(Instant::now());
        state.scan_took = took;
    }

    /// Applies the moves of a committed transaction.
    pub(crate) fn note(&self, moves: &Moves) {
        let mut state = self.state();
        // Lower after raising: a requeued task must stay within the bound.
        state.raise(moves);
        state.lower(moves);
    }

    /// Raises the bounds to the first tasks seen in their lanes.
    pub(crate) fn raise(&self, moves: &Moves) {
        self.state().raise(moves);
    }

    /// Lowers the bounds to tasks that are claimable again.
    pub(crate) fn lower(&self, moves: &Moves) {
        self.state().lower(moves);
    }
}

impl State {
    fn raise(&mut self, moves: &Moves) {
        let now = Instant::now();
        for (lane, due_at, looked_back) in &moves.raised {
            let bound = self.lanes.entry(*lane).or_insert(Bound {
                due_at: *due_at,
                looked_back_at: now,
            });
            bound.due_at = bound.due_at.max(*due_at);

            if *looked_back {
                bound.looked_back_at = now;
            }
        }
    }

    fn lower(&mut self, moves: &Moves) {
        for (lane, due_at) in &moves.lowered {
            if let Some(bound) = self.lanes.get_mut(lane) {
                bound.due_at = bound.due_at.min(*due_at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bounds after claims of these lanes up to these times.
    fn claimed(lanes: &[(i64, i64)]) -> ClaimBounds {
        let bounds = ClaimBounds::default();
        bounds.note_full_scan(Duration::ZERO);
        let mut moves = Moves::default();
        lanes
            .iter()
            .for_each(|(lane, due_at)| moves.claimed(&[], *lane, *due_at));
        bounds.raise(&moves);
        bounds
    }

    fn due_from(bounds: &ClaimBounds, lane: i64) -> i64 {
        bounds
            .current()
            .iter()
            .find(|bound| bound.lane == lane)
            .unwrap()
            .due_at
    }

    #[test]
    fn a_bound_rises_with_claims_and_falls_with_returned_tasks() {
        let bounds = claimed(&[(1, 50), (1, 40)]);
        assert_eq!(due_from(&bounds, 1), 50);
        let mut moves = Moves::default();
        moves.requeued(1, 20);
        moves.requeued(2, 20);
        bounds.lower(&moves);
        assert_eq!((bounds.current().len(), due_from(&bounds, 1)), (1, 20));
    }

    #[test]
    fn one_lanes_look_back_does_not_use_up_anothers() {
        let bounds = claimed(&[(1, LATE_COMMIT_US), (2, LATE_COMMIT_US)]);
        assert_eq!(
            (due_from(&bounds, 1), due_from(&bounds, 2)),
            (LATE_COMMIT_US, LATE_COMMIT_US)
        );

        for bound in bounds.state().lanes.values_mut() {
            bound.looked_back_at -= LATE_LOOK_EVERY;
        }

        let known = bounds.current();
        assert_eq!((due_from(&bounds, 1), due_from(&bounds, 2)), (0, 0));
        let mut moves = Moves::default();
        moves.claimed(&known, 1, LATE_COMMIT_US);
        bounds.raise(&moves);
        assert_eq!(
            (due_from(&bounds, 1), due_from(&bounds, 2)),
            (LATE_COMMIT_US, 0)
        );
    }

    #[test]
    fn nothing_is_bounded_before_the_first_full_scan() {
        let bounds = ClaimBounds::default();
        let mut moves = Moves::default();
        moves.claimed(&[], 1, 50);
        bounds.raise(&moves);
        assert!(bounds.current().is_empty());
        assert!(bounds.may_look_again());
    }
}
