//! Acknowledged hints that wait here until their tasks can be claimed.

use std::collections::{BTreeMap, HashSet};

use longhaul_domain::{TaskId, contract::broker::Hint};
use tokio::time::Instant;

use super::LOOKUP_AGAIN;

/// Hints that wait at most. The dispatcher publishes hints for tasks beyond that again.
const CAPACITY: usize = 1_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct EarlyHints(BTreeMap<(Instant, TaskId), Hint>);

impl EarlyHints {
    /// Adds hints that are due at this moment, as many as fit.
    pub(super) fn add(&mut self, due: Instant, hints: impl IntoIterator<Item = Hint>) {
        let free = CAPACITY.saturating_sub(self.0.len());
        for hint in hints.into_iter().take(free) {
            self.0.insert((due, hint.task_id), hint);
        }
    }

    /// Adds a hint that was published before its task was committed, to look the task up again in a
    /// moment. Returns the hint if it has no lookups left.
    pub(super) fn look_up_again(&mut self, mut hint: Hint) -> Option<Hint> {
        let Some(lookups) = hint.lookups.checked_sub(1) else {
            return Some(hint);
        };

        hint.lookups = lookups;
        self.add(Instant::now() + LOOKUP_AGAIN, [hint]);
        None
    }

    /// When the first hint is due.
    pub(super) fn first_due(&self) -> Option<Instant> {
        let ((due, _), _) = self.0.first_key_value()?;
        Some(*due)
    }

    /// Takes out the hints that are due.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Hint> {
        let mut due = Vec::new();
        while let Some(entry) = self.0.first_entry() {
            if entry.key().0 > now {
                break;
            }
            due.push(entry.remove());
        }

        due
    }

    /// Removes the hints of these tasks.
    pub(super) fn remove(&mut self, tasks: &HashSet<TaskId>) {
        self.0.retain(|(_, id), _| !tasks.contains(id));
    }

    pub(super) fn take_all(&mut self) -> Vec<Hint> {
        std::mem::take(&mut self.0).into_values().collect()
    }
}
