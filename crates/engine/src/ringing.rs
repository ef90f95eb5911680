//! What the ringer rings for: the pure half of it.
//!
//! A [`Lane`] is the ringer's idea of one queue of the broker. It is told what waits in the store, in the store's order,
//! and how many bells the broker still has; it says which tasks to ring for, so that about as many bells are out as the
//! fleet answers in a second. Where more waits than that the queue is held: nodes take from the store by themselves, and a
//! few bells are enough for those who have not heard. It knows no clock and no broker, and may forget everything at any time: what waits without
//! a bell is rung for again.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use longhaul_domain::{
    TaskId, Timestamp, bounds,
    contract::broker::{Bell, Published},
};
use tokio::time::Instant;

/// Bells that are out at the least: enough for the slots of a few nodes before anything is known of their speed.
pub const LEAST: usize = 64;
/// Bells that are out at the most. Where more waits, nodes do better without them. More are listed, since those that
/// nobody answers for may stand before the others.
pub const MOST: usize = 1_000;
const MOST_LISTED: usize = bounds::DUE_BATCH;
/// Whoever made a task claimable rings at once. What still has no bell after this long is the ringer's.
const GRACE: Duration = Duration::from_millis(150);
/// A bell that is not in the broker any more and was not answered is lost. It may also have met nodes that do not know
/// the type or have no slot for it, so each further one waits twice as long, up to [`LONGEST_PATIENCE`].
const PATIENCE: Duration = Duration::from_secs(2);
const LONGEST_PATIENCE: Duration = Duration::from_secs(30);
/// How often a broker may refuse the bell of a task before the task is given up.
const REFUSALS: u32 = 5;
/// The rest after the first refusal; it doubles with each.
const REFUSED_REST: Duration = Duration::from_secs(1);
/// Looks at a lane that has just been found too narrow, and at one that has work at all.
const SOONEST: Duration = Duration::from_millis(20);
const SOON: Duration = Duration::from_millis(200);

/// What is to be done after a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// The places in the list of what to ring for, in order.
    pub ring: Vec<usize>,
    /// Those of them that were rung for before.
    pub again: usize,
    /// When to look again; nothing when nothing waits.
    pub next_in: Option<Duration>,
}

/// The ringer's idea of one queue.
#[derive(Debug)]
pub struct Lane {
    /// Bells that may be out.
    target: usize,
    /// Tasks answered in a second, about.
    rate: f64,
    looked_at: Option<Instant>,
    /// What waited at the last look.
    known: HashMap<TaskId, Known>,
    is_held: bool,
}

/// A task that waits.
#[derive(Debug)]
struct Known {
    place: (Reverse<u8>, Timestamp, TaskId),
    first_seen: Instant,
    /// When its last bell was rung, and how many were.
    rung: Option<(Instant, u32)>,
    /// When the broker refused its bell last, and how often in a row.
    refused: Option<(Instant, u32)>,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            target: LEAST,
            rate: 0.0,
            looked_at: None,
            known: HashMap::new(),
            is_held: false,
        }
    }
}

impl Lane {
    /// How many of the waiting tasks to list for the next look: one more than there are bells for, and past those that
    /// nobody has answered for a while.
    pub fn window(&self) -> usize {
        let deaf = self
            .known
            .values()
            .filter(|known| known.rung.is_some_and(|(_, times)| times > 2))
            .count();
        (self.target + deaf + 1).min(MOST_LISTED)
    }

    /// Whether more waits than the fleet answers soon: those who submit leave the ringing to the ringer.
    pub const fn is_held(&self) -> bool {
        self.is_held
    }

    /// Decides what to ring for. `waiting` is the answer to a list of [`Self::window`] tasks.
    pub fn look(&mut self, now: Instant, waiting: &[Bell], depth: usize) -> Look {
        let window = self.window();
        let answered = self.forget_answered(waiting, window);
        let is_first = self.looked_at.is_none();
        let since = self
            .looked_at
            .replace(now)
            .map_or(Duration::ZERO, |at| now.duration_since(at));
        self.pace(answered, since);
        let grew = self.resize(waiting.len(), depth);
        for bell in waiting {
            let place = place(bell);
            let known = self.known.entry(bell.task_id);
            known
                .and_modify(|known| known.place = place)
                .or_insert(Known {
                    place,
                    first_seen: now,
                    rung: None,
                    refused: None,
                });
        }
        let (ring, again) = self.choose(now, waiting, depth);
        let is_soonest = self.is_held && (grew || is_first);
        let next_in = (!waiting.is_empty()).then_some(if is_soonest { SOONEST } else { SOON });
        Look {
            ring,
            again,
            next_in,
        }
    }

    /// Notes what became of a bell.
    pub fn published(&mut self, now: Instant, id: TaskId, published: &Published) {
        let Some(known) = self.known.get_mut(&id) else {
            return;
        };
        match published {
            Published::Confirmed => {
                known.rung = Some((now, known.rung.map_or(1, |(_, times)| times + 1)));
                known.refused = None;
            }
            Published::Refused(_) => {
                known.refused = Some((now, known.refused.map_or(1, |(_, times)| times + 1)))
            }
            // Nobody knows, and a bell too many does no harm.
            Published::Unknown(_) => {}
        }
    }

    /// Takes out the tasks whose bells were refused too often.
    pub fn given_up(&mut self) -> Vec<TaskId> {
        let too_often = |known: &Known| known.refused.is_some_and(|(_, times)| times >= REFUSALS);
        self.known
            .extract_if(|_, known| too_often(known))
            .map(|(id, _)| id)
            .collect()
    }

    /// Forgets what waited and no longer does, and counts what was answered. What stands behind the end of a full list
    /// may still wait.
    fn forget_answered(&mut self, waiting: &[Bell], window: usize) -> usize {
        let listed: HashSet<TaskId> = waiting.iter().map(|bell| bell.task_id).collect();
        let end = waiting
            .last()
            .filter(|_| waiting.len() >= window)
            .map(place);
        let is_gone = |id: &TaskId, known: &Known| {
            !listed.contains(id) && end.is_none_or(|end| known.place < end)
        };
        let answered = self
            .known
            .extract_if(|id, known| is_gone(id, known))
            .filter(|(_, known)| known.rung.is_some())
            .count();
        if self.known.len() > 2 * MOST_LISTED {
            self.known.retain(|id, _| listed.contains(id));
        }
        answered
    }

    /// The rate follows about the last second.
    fn pace(&mut self, answered: usize, since: Duration) {
        let seconds = since.as_secs_f64();
        if seconds > 0.0 {
            let weight = (seconds * 2.0).min(1.0);
            self.rate += (answered as f64 / seconds - self.rate) * weight;
        }
    }

    /// Says how many bells may be out: twice as many when they went too quickly, slowly fewer when they lie. Answers with
    /// whether it was too few.
    fn resize(&mut self, waiting: usize, depth: usize) -> bool {
        self.is_held = waiting
            > if self.is_held {
                self.target / 2
            } else {
                self.target
            };
        let was_rung = self.known.values().any(|known| known.rung.is_some()) || self.rate > 0.0;
        if waiting > self.target && depth < self.most_out() / 4 && was_rung {
            let before = self.target;
            self.target = (before * 2).min(MOST);
            return self.target > before;
        }
        if self.rate < self.target as f64 {
            self.target = (self.target - self.target / 16)
                .max(LEAST)
                .max((self.rate as usize).min(MOST));
        }
        false
    }

    /// Bells that are to be out now.
    const fn most_out(&self) -> usize {
        if self.is_held { LEAST } else { self.target }
    }

    /// Those without a bell, as many as the lane has room for. An urgent task does not wait for room: its bell overtakes.
    fn choose(&self, now: Instant, waiting: &[Bell], depth: usize) -> (Vec<usize>, usize) {
        let wanted = waiting.len().min(self.window() - 1);
        let room = wanted.min(self.most_out()).saturating_sub(depth);
        let most = (self.most_out() * 2).saturating_sub(depth);
        let lowest = self
            .known
            .values()
            .filter(|known| known.rung.is_some())
            .map(|known| known.place.0.0)
            .min();
        let (mut ring, mut again) = (Vec::new(), 0);
        for (index, bell) in waiting.iter().enumerate().take(wanted) {
            let Some(known) = self.known.get(&bell.task_id) else {
                continue;
            };
            let is_urgent =
                known.rung.is_none() && lowest.is_some_and(|lowest| bell.priority > lowest);
            let has_room = ring.len() < room || (is_urgent && ring.len() < most);
            if has_room && known.needs_a_bell(now, self.is_held) {
                again += usize::from(known.rung.is_some());
                ring.push(index);
            }
        }
        (ring, again)
    }
}

impl Known {
    fn needs_a_bell(&self, now: Instant, is_held: bool) -> bool {
        let has_rested = self
            .refused
            .is_none_or(|(at, times)| now.duration_since(at) >= doubled(REFUSED_REST, times));
        let is_missed = match self.rung {
            None => is_held || now.duration_since(self.first_seen) >= GRACE,
            Some((at, times)) => {
                now.duration_since(at) >= doubled(PATIENCE, times).min(LONGEST_PATIENCE)
            }
        };
        has_rested && is_missed
    }
}

/// The first time as it is, then twice as long each time.
fn doubled(first: Duration, times: u32) -> Duration {
    first * 2_u32.saturating_pow(times.saturating_sub(1).min(16))
}

/// Where a bell's task stands in its queue.
fn place(bell: &Bell) -> (Reverse<u8>, Timestamp, TaskId) {
    (Reverse(bell.priority), bell.due_at, bell.task_id)
}

#[cfg(test)]
mod tests;
