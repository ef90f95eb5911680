//! The lines that owners wait in, and the places that they are given. No clock, no store: whoever looks tells it.
//!
//! This is start-time fair queueing: the head of a line is the time of its world, a task costs a microsecond of it, and an
//! owner's next task starts where the owner's last one ended, or at the head if that has passed it.

use std::collections::{BTreeMap, HashMap};

use longhaul_domain::{RunAt, Timestamp, bounds, contract::store::QueueHead};

/// Places that are remembered in one process, each with an owner's name: some 20 MB. Who comes when it is full goes to the
/// end of the line, as if there were no turns.
const PLACES: usize = 100_000;
/// Queues that are remembered. There are as many as operators have named, and a few more that people have made up.
const QUEUES: usize = 1_000;
/// Tasks of a line that this process has made since the last look, from which on it counts as a backlog that nobody has
/// seen yet. Fewer hold nobody up.
const FEW: usize = 10;
/// How old the head of a line may be, in milliseconds: a day. Tasks that nobody runs stay at the head for ever; they must not
/// make the day's fairness a matter of the year's totals.
const OLDEST_MS: u64 = 24 * 3_600 * 1_000;

/// All lines that somebody waits in, as far as this process knows.
#[derive(Debug, Default)]
pub(super) struct Lines {
    queues: HashMap<String, BTreeMap<u8, Line>>,
    /// Places in all lines.
    places: usize,
}

/// Those who wait in one queue with one priority.
#[derive(Debug, Default)]
struct Line {
    /// The first in it, when somebody last looked.
    seen: Option<Timestamp>,
    /// What this process has put there since that look began, and before it since the one before.
    fresh: Added,
    before: Added,
    /// The last place of each owner.
    last: HashMap<String, Timestamp>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Added {
    tasks: usize,
    first: Option<Timestamp>,
}

impl Line {
    /// Where the line begins, if there is one.
    fn head(&self) -> Option<Timestamp> {
        let is_many = self.fresh.tasks + self.before.tasks > FEW;
        let own = [self.fresh.first, self.before.first]
            .into_iter()
            .flatten()
            .min()
            .filter(|_| is_many);
        self.seen.into_iter().chain(own).min()
    }
}

/// The places of some tasks of one owner in one line, which follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Places {
    /// Nothing where the task is due when the store has it.
    next: Option<Timestamp>,
    now: Timestamp,
}

impl Places {
    /// The place of the next task.
    pub(super) fn take(&mut self) -> RunAt {
        let Some(place) = self.next else {
            return RunAt::Now;
        };
        self.next = Some(after(place));
        RunAt::At(place.min(self.now))
    }
}

fn after(place: Timestamp) -> Timestamp {
    Timestamp::from_micros(place.as_micros().saturating_add(1))
}

impl Lines {
    /// Gives an owner the places of `count` tasks. `now` is at most the store's time.
    pub(super) fn join(
        &mut self,
        queue: &str,
        priority: u8,
        owner: &str,
        count: usize,
        now: Timestamp,
    ) -> Places {
        let at_the_end = Places { next: None, now };
        let is_full = self.places >= PLACES;
        if !self.queues.contains_key(queue) {
            if is_full || self.queues.len() >= QUEUES {
                return at_the_end;
            }
            self.queues.insert(queue.to_owned(), BTreeMap::new());
        }
        let Some(line) = self
            .queues
            .get_mut(queue)
            .map(|lines| lines.entry(priority).or_default())
        else {
            return at_the_end;
        };
        let (head, last) = (line.head(), line.last.get(owner).copied());
        if last.is_none() && is_full {
            return at_the_end;
        }
        let span = i64::try_from(count.saturating_sub(1)).unwrap_or(i64::MAX);
        let first = match head {
            Some(head) => last
                .map_or(head, |last| after(last).max(head))
                .max(now.minus_ms(OLDEST_MS))
                .min(now),
            None => Timestamp::from_micros(now.as_micros().saturating_sub(span)),
        };
        let end = Timestamp::from_micros(first.as_micros().saturating_add(span)).min(now);
        match line.last.get_mut(owner) {
            Some(last) => *last = end,
            None => {
                line.last.insert(owner.to_owned(), end);
                self.places += 1;
            }
        }
        line.fresh.tasks = line.fresh.tasks.saturating_add(count);
        line.fresh.first = Some(line.fresh.first.map_or(first, |earlier| earlier.min(first)));
        // A lone task where nobody waits is left as it is.
        let next = (head.is_some() || count > 1).then_some(first);
        Places { next, now }
    }

    /// Somebody looks at the store. What is put into the lines from now on may not be seen.
    pub(super) fn begin_look(&mut self) {
        for line in self.queues.values_mut().flat_map(BTreeMap::values_mut) {
            line.before = std::mem::take(&mut line.fresh);
        }
    }

    /// What was seen. Places that a line has passed are forgotten, and so are lines that nobody waits in.
    pub(super) fn end_look(&mut self, heads: &[QueueHead], now: Timestamp) {
        for line in self.queues.values_mut().flat_map(BTreeMap::values_mut) {
            (line.seen, line.before) = (None, Added::default());
        }
        let oldest = now.minus_ms(OLDEST_MS);
        // What is due later holds nobody up, and those that were brought forward stand in no line.
        for head in heads
            .iter()
            .filter(|head| head.due_at <= now && head.priority != bounds::FORWARD)
        {
            if !self.queues.contains_key(&head.queue) && self.queues.len() >= QUEUES {
                continue;
            }
            let lines = self.queues.entry(head.queue.clone()).or_default();
            let seen = &mut lines.entry(head.priority).or_default().seen;
            *seen = Some(seen.map_or(head.due_at, |known| first_of(known, head.due_at, oldest)));
        }
        for lines in self.queues.values_mut() {
            lines.retain(|_, line| {
                // Without a head, what has come since the look began may become one.
                let head = line.seen.into_iter().chain(line.fresh.first).min();
                line.last
                    .retain(|_, last| head.is_some_and(|head| *last >= head.max(oldest)));
                head.is_some()
            });
        }
        self.queues.retain(|_, lines| !lines.is_empty());
        self.places = self
            .queues
            .values()
            .flat_map(BTreeMap::values)
            .map(|line| line.last.len())
            .sum();
    }
}

/// Which of two types is the head of a line: the earlier one, but one that nobody has served for so long is passed over while
/// others wait.
fn first_of(one: Timestamp, other: Timestamp, oldest: Timestamp) -> Timestamp {
    match (one < oldest, other < oldest) {
        (true, false) => other,
        (false, true) => one,
        _ => one.min(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    const DAY_US: i64 = 86_400_000_000;

    fn head_of(task_type: &str, micros: i64) -> QueueHead {
        QueueHead {
            queue: "q".to_owned(),
            priority: 1,
            task_type: task_type.to_owned(),
            due_at: at(micros),
        }
    }

    fn head(micros: i64) -> Vec<QueueHead> {
        vec![head_of("t", micros)]
    }

    /// Lines with somebody waiting since `micros`.
    fn backlog(micros: i64, now: Timestamp) -> Lines {
        let mut lines = Lines::default();
        look(&mut lines, &head(micros), now);
        lines
    }

    fn look(lines: &mut Lines, heads: &[QueueHead], now: Timestamp) {
        lines.begin_look();
        lines.end_look(heads, now);
    }

    fn places(lines: &mut Lines, owner: &str, count: usize, now: Timestamp) -> Vec<RunAt> {
        let mut places = lines.join("q", 1, owner, count, now);
        (0..count).map(|_| places.take()).collect()
    }

    fn joined(lines: &mut Lines, owner: &str, count: usize, now: Timestamp) -> Vec<i64> {
        let moment = |place| match place {
            RunAt::At(moment) => moment.as_micros(),
            RunAt::Now | RunAt::AfterMs(_) => panic!("{owner} was given no place"),
        };
        places(lines, owner, count, now)
            .into_iter()
            .map(moment)
            .collect()
    }

    #[test]
    fn a_type_that_nobody_serves_is_passed_over_while_others_wait() {
        let now = at(10 * DAY_US);
        let mut lines = Lines::default();
        let waiting = now.as_micros() - 1_000;
        look(
            &mut lines,
            &[head_of("unserved", 5), head_of("served", waiting)],
            now,
        );
        // Ten thousand of one owner, and later one of another: it joins at the head.
        lines.join("q", 1, "a", 10_000, now);
        let later = now.plus_ms(5_000);
        look(
            &mut lines,
            &[head_of("unserved", 5), head_of("served", waiting)],
            later,
        );
        assert_eq!(lines.join("q", 1, "b", 1, later).next, Some(at(waiting)));
    }

    #[test]
    fn owners_take_turns_one_by_one() {
        let now = at(5_000_000);
        let mut lines = backlog(1_000, now);
        assert_eq!(joined(&mut lines, "a", 3, now), [1_000, 1_001, 1_002]);
        assert_eq!(joined(&mut lines, "b", 2, now), [1_000, 1_001]);
        assert_eq!(joined(&mut lines, "a", 2, now), [1_003, 1_004]);
        assert_eq!(joined(&mut lines, "b", 1, now), [1_002]);
    }

    #[test]
    fn a_newcomer_joins_at_the_head_wherever_that_is_by_now() {
        let now = at(5_000_000);
        let mut lines = backlog(1_000, now);
        joined(&mut lines, "a", 100, now);
        look(&mut lines, &head(1_050), now);
        assert_eq!(joined(&mut lines, "b", 1, now), [1_050]);
        assert_eq!(joined(&mut lines, "a", 1, now), [1_100]);
    }

    #[test]
    fn an_owner_whose_tasks_are_gone_is_a_newcomer() {
        let now = at(5_000_000);
        let mut lines = backlog(1_000, now);
        joined(&mut lines, "a", 10, now);
        look(&mut lines, &head(2_000), now);
        assert_eq!(lines.places, 0);
        assert_eq!(joined(&mut lines, "a", 1, now), [2_000]);
    }

    #[test]
    fn where_nobody_waits_nothing_changes() {
        let mut lines = Lines::default();
        for n in 0..5 {
            assert_eq!(places(&mut lines, "a", 1, at(n)), [RunAt::Now]);
        }
        look(&mut lines, &[], at(100));
        look(&mut lines, &[], at(200));
        assert!(lines.queues.is_empty());
        // Tasks of tomorrow are no line.
        look(&mut lines, &head(1_000), at(300));
        assert_eq!(places(&mut lines, "a", 1, at(400)), [RunAt::Now]);
    }

    #[test]
    fn a_batch_is_spaced_and_ends_now() {
        let mut lines = Lines::default();
        assert_eq!(joined(&mut lines, "a", 3, at(100)), [98, 99, 100]);
    }

    #[test]
    fn a_flood_that_nobody_has_seen_yet_is_a_line() {
        let (mut lines, now) = (Lines::default(), at(5_000_000));
        joined(&mut lines, "a", 1_000, now);
        assert_eq!(joined(&mut lines, "b", 1, now), [4_999_001]);
        // A look that began before cannot have seen what came after it.
        lines.begin_look();
        joined(&mut lines, "c", 1_000, now);
        lines.end_look(&[], now);
        assert_eq!(joined(&mut lines, "d", 1, now), [4_999_001]);
        // The next one does.
        look(&mut lines, &[], now);
        assert_eq!(places(&mut lines, "e", 1, now), [RunAt::Now]);
    }

    #[test]
    fn no_place_is_in_the_future() {
        let now = at(1_002);
        let mut lines = backlog(1_000, now);
        assert_eq!(
            joined(&mut lines, "a", 4, now),
            [1_000, 1_001, 1_002, 1_002]
        );
        assert_eq!(joined(&mut lines, "a", 1, now), [1_002]);
    }

    #[test]
    fn tasks_that_nobody_runs_do_not_hold_the_world_still() {
        let now = at(3 * 24 * 3_600 * 1_000_000);
        let mut lines = backlog(1_000, now);
        let oldest = now.minus_ms(OLDEST_MS).as_micros();
        assert_eq!(joined(&mut lines, "a", 1, now), [oldest]);
        look(&mut lines, &head(1_000), at(now.as_micros() + 1_000_000));
        assert_eq!(lines.places, 0);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let now = at(5_000_000);
        let mut lines = backlog(1_000, now);
        for n in 0..PLACES {
            lines.join("q", 1, &n.to_string(), 1, now);
        }
        assert_eq!(places(&mut lines, "late", 2, now), [RunAt::Now, RunAt::Now]);
        assert_eq!(joined(&mut lines, "7", 1, now), [1_001]);
        look(&mut lines, &head(2_000), now);
        for n in 0..QUEUES + 5 {
            lines.join(&n.to_string(), 1, "a", 1, now);
        }
        assert_eq!(lines.queues.len(), QUEUES);
    }
}
