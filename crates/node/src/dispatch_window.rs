//! Which tasks of a queue the dispatcher publishes hints for: the pure half of the dispatcher.
//!
//! A [`DispatchWindow`] follows one queue of the broker. The dispatcher lists the first waiting
//! tasks of the queue in the store's order, counts the hints that the broker still has, and asks
//! the window for a [`Plan`]. The window keeps about as many hints published as the nodes claim in
//! a second: it grows when the broker runs out of hints, and shrinks when they pile up.
//!
//! A queue in which more tasks wait than that is *backlogged*. Nodes then claim from the store by
//! themselves, and a few hints are enough for the nodes that do not know it yet.
//!
//! The window has no clock and no broker. All of it may be lost at any time: tasks that wait
//! without a hint get another one.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use longhaul_domain::{
    TaskId, Timestamp, bounds,
    contract::broker::{Hint, Published},
};
use tokio::time::Instant;

/// The smallest window: hints for the slots of a few nodes, before anything is known of their
/// speed.
pub const MIN_TARGET: usize = 64;
/// The largest window. Where more tasks wait, nodes do better without hints.
pub const MAX_TARGET: usize = 1_000;
/// Tasks that are listed at once. More than the window, because tasks that no node answers for may
/// come before the others.
const MAX_LISTED: usize = bounds::DUE_BATCH;
/// The process that makes a task claimable publishes its hint. A task that still has none after
/// this long gets one from the dispatcher.
const GRACE: Duration = Duration::from_millis(150);
/// A hint that has left the broker without a claim for this long is lost. It may also have reached
/// nodes that do not know the type or have no slot, so each further hint waits twice as long, up to
/// [`MAX_HINT_TIMEOUT`].
const HINT_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_HINT_TIMEOUT: Duration = Duration::from_secs(30);
/// Hints of a task that the broker may refuse before the task is given up.
const MAX_REFUSALS: u32 = 5;
/// The pause after the first refusal. It doubles with each one.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);
/// The window grows when the broker has less than this part of the hints that it may have. The
/// nodes claim the rest until the next plan.
const GROW_BELOW: usize = 4;
/// The part of itself by which the window shrinks in one plan. It takes two seconds to halve, so
/// that a short lull does not cost its size.
const SHRINK_BY: usize = 16;
/// When to plan again: after the window turned out too small, and while any tasks wait.
const SOONEST: Duration = Duration::from_millis(20);
const SOON: Duration = Duration::from_millis(200);

/// What to publish now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Indexes into the list of waiting tasks, in the order of publishing.
    pub publish: Vec<usize>,
    /// How many of them have had a hint before.
    pub repeated: usize,
    /// When to plan again; `None` when no tasks wait.
    pub next_in: Option<Duration>,
}

/// The window of one queue.
#[derive(Debug)]
pub struct DispatchWindow {
    /// How many hints may be published and unclaimed.
    target: usize,
    /// Hints that led to a claim, per second; follows about the last second.
    claim_rate: f64,
    planned_at: Option<Instant>,
    /// The tasks that waited at the last plan.
    waiting: HashMap<TaskId, WaitingTask>,
    is_backlogged: bool,
}

/// Where a task stands in its queue: highest priority first, then the earliest due time.
type Position = (Reverse<u8>, Timestamp, TaskId);

#[derive(Debug)]
struct WaitingTask {
    position: Position,
    first_seen: Instant,
    /// The hints that were published for it.
    published: Option<Occurrences>,
    /// The refusals of its hint by the broker, in a row.
    refused: Option<Occurrences>,
}

/// How often something has happened, and when it last did.
#[derive(Debug, Clone, Copy)]
struct Occurrences {
    last_at: Instant,
    count: u32,
}

impl Occurrences {
    /// With one more, now.
    fn after(before: Option<Self>, now: Instant) -> Self {
        Self {
            last_at: now,
            count: before.map_or(0, |before| before.count) + 1,
        }
    }
}

impl Default for DispatchWindow {
    fn default() -> Self {
        Self {
            target: MIN_TARGET,
            claim_rate: 0.0,
            planned_at: None,
            waiting: HashMap::new(),
            is_backlogged: false,
        }
    }
}

impl DispatchWindow {
    /// How many waiting tasks to list for the next plan: one more than it may choose from, which
    /// shows whether the queue is backlogged.
    pub fn list_limit(&self) -> usize {
        self.choice_limit() + 1
    }

    /// How many of the first waiting tasks may get a hint: as many as the window holds, and past
    /// those whose hints have led to no claim for a while.
    fn choice_limit(&self) -> usize {
        let is_unanswered =
            |task: &&WaitingTask| task.published.is_some_and(|published| published.count > 2);
        let unanswered = self.waiting.values().filter(is_unanswered).count();
        (self.target + unanswered).min(MAX_LISTED - 1)
    }

    /// Whether more tasks wait than the nodes claim soon. Submitting processes then leave the hints
    /// of this queue to the dispatcher.
    pub const fn is_backlogged(&self) -> bool {
        self.is_backlogged
    }

    /// Plans what to publish. `listed` are the first [`Self::list_limit`] waiting tasks, and
    /// `unclaimed` is the number of hints that the broker has.
    pub fn plan(&mut self, now: Instant, listed: &[Hint], unclaimed: usize) -> Plan {
        // The limit by which `listed` was listed. Resizing the window changes it for the next plan.
        let is_complete = listed.len() < self.list_limit();
        let gone = self.take_gone(listed, is_complete);
        let claimed = gone.iter().filter(|task| task.published.is_some()).count();
        let before = self.planned_at.replace(now);
        if let Some(before) = before {
            self.update_rate(claimed, now.duration_since(before));
        }

        let has_grown = self.resize(listed.len(), unclaimed);
        self.remember(now, listed);

        let is_too_small = has_grown || before.is_none();
        let next_in = if listed.is_empty() {
            None
        } else if self.is_backlogged && is_too_small {
            Some(SOONEST)
        } else {
            Some(SOON)
        };
        self.choose(now, listed, unclaimed, next_in)
    }

    /// Notes the outcome of a hint.
    pub fn published(&mut self, now: Instant, id: TaskId, outcome: &Published) {
        let Some(task) = self.waiting.get_mut(&id) else {
            return;
        };

        match outcome {
            Published::Confirmed => {
                task.published = Some(Occurrences::after(task.published, now));
                task.refused = None;
            }
            Published::Refused(_) => {
                task.refused = Some(Occurrences::after(task.refused, now));
            }
            // A repeated hint does no harm, so an unknown outcome counts as none.
            Published::Unknown(_) => {}
        }
    }

    /// Takes out the tasks whose hints were refused too often.
    pub fn take_given_up(&mut self) -> Vec<TaskId> {
        let given_up = self.waiting.extract_if(|_, task| {
            task.refused
                .is_some_and(|refused| refused.count >= MAX_REFUSALS)
        });
        given_up.map(|(id, _)| id).collect()
    }

    /// Takes out the tasks that no longer wait. Where the list is not complete, tasks behind its
    /// end may still wait and stay.
    fn take_gone(&mut self, listed: &[Hint], is_complete: bool) -> Vec<WaitingTask> {
        let ids: HashSet<TaskId> = listed.iter().map(|hint| hint.task_id).collect();
        let end = match listed.last() {
            Some(last) if !is_complete => Some(position(last)),
            Some(_) | None => None,
        };

        let gone = self.waiting.extract_if(|id, task| {
            let is_within_list = end.is_none_or(|end| task.position < end);
            is_within_list && !ids.contains(id)
        });
        let gone = gone.map(|(_, task)| task).collect();

        // Tasks behind the end of the list are remembered up to a bound.
        if self.waiting.len() > 2 * MAX_LISTED {
            self.waiting.retain(|id, _| ids.contains(id));
        }
        gone
    }

    fn update_rate(&mut self, claimed: usize, since: Duration) {
        let seconds = since.as_secs_f64();
        if seconds > 0.0 {
            let weight = (seconds * 2.0).min(1.0);
            self.claim_rate += (claimed as f64 / seconds - self.claim_rate) * weight;
        }
    }

    /// Doubles the window when the broker runs out of hints, and shrinks it slowly when they pile
    /// up. Returns whether it has grown.
    fn resize(&mut self, listed: usize, unclaimed: usize) -> bool {
        // A backlog ends at half the window, so that a queue does not go back and forth.
        let backlog_limit = if self.is_backlogged {
            self.target / 2
        } else {
            self.target
        };
        self.is_backlogged = listed > backlog_limit;

        let has_published =
            self.claim_rate > 0.0 || self.waiting.values().any(|task| task.published.is_some());
        let runs_out = unclaimed < self.max_unclaimed() / GROW_BELOW;
        if listed > self.target && runs_out && has_published {
            let before = self.target;
            self.target = (before * 2).min(MAX_TARGET);
            return self.target > before;
        }

        if self.claim_rate < self.target as f64 {
            let least = (self.claim_rate as usize).clamp(MIN_TARGET, MAX_TARGET);
            self.target = (self.target - self.target / SHRINK_BY).max(least);
        }
        false
    }

    fn remember(&mut self, now: Instant, listed: &[Hint]) {
        for hint in listed {
            let position = position(hint);
            self.waiting
                .entry(hint.task_id)
                .and_modify(|task| task.position = position)
                .or_insert(WaitingTask {
                    position,
                    first_seen: now,
                    published: None,
                    refused: None,
                });
        }
    }

    /// Hints that may be in the broker now.
    const fn max_unclaimed(&self) -> usize {
        if self.is_backlogged {
            MIN_TARGET
        } else {
            self.target
        }
    }

    /// Chooses tasks that need a hint, as many as the window has room for. A task whose priority is
    /// above that of every published one may exceed the window, up to twice its size, because its
    /// hint overtakes them in the broker.
    fn choose(
        &self,
        now: Instant,
        listed: &[Hint],
        unclaimed: usize,
        next_in: Option<Duration>,
    ) -> Plan {
        // A window that has just shrunk chooses from fewer tasks than were listed for it.
        let considered = listed.len().min(self.choice_limit());
        let room = considered
            .min(self.max_unclaimed())
            .saturating_sub(unclaimed);
        let urgent_room = (self.max_unclaimed() * 2).saturating_sub(unclaimed);
        let lowest_published = self.lowest_published_priority();

        let mut publish = Vec::new();
        let mut repeated = 0;
        for (index, hint) in listed.iter().enumerate().take(considered) {
            let Some(task) = self.waiting.get(&hint.task_id) else {
                continue;
            };

            let is_urgent = task.published.is_none()
                && lowest_published.is_some_and(|lowest| hint.priority > lowest);
            let has_room = publish.len() < room || (is_urgent && publish.len() < urgent_room);
            if has_room && task.needs_hint(now, self.is_backlogged) {
                repeated += usize::from(task.published.is_some());
                publish.push(index);
            }
        }

        Plan {
            publish,
            repeated,
            next_in,
        }
    }

    fn lowest_published_priority(&self) -> Option<u8> {
        let mut lowest = None;
        for task in self.waiting.values() {
            let Reverse(priority) = task.position.0;
            if task.published.is_some() && lowest.is_none_or(|lowest| priority < lowest) {
                lowest = Some(priority);
            }
        }

        lowest
    }
}

impl WaitingTask {
    fn needs_hint(&self, now: Instant, is_backlogged: bool) -> bool {
        let is_paused = self.refused.is_some_and(|refused| {
            now.duration_since(refused.last_at) < doubled(REFUSAL_PAUSE, refused.count)
        });
        if is_paused {
            return false;
        }

        match self.published {
            None => is_backlogged || now.duration_since(self.first_seen) >= GRACE,
            Some(published) => {
                let timeout = doubled(HINT_TIMEOUT, published.count).min(MAX_HINT_TIMEOUT);
                now.duration_since(published.last_at) >= timeout
            }
        }
    }
}

/// `first` for the first time, and twice as long each further time.
fn doubled(first: Duration, times: u32) -> Duration {
    first * 2_u32.saturating_pow(times.saturating_sub(1).min(16))
}

fn position(hint: &Hint) -> Position {
    (Reverse(hint.priority), hint.due_at, hint.task_id)
}

#[cfg(test)]
mod tests;
