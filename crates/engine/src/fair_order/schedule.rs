//! The due times that fair order assigns. Pure: no clock and no store; the caller passes in what it
//! has read.
//!
//! This is start-time fair queueing. The oldest waiting task of a queue and priority is its virtual
//! time, and each task costs a microsecond of it. An owner's next task is due where the owner's
//! last one ended, or at the virtual time if that is later.

use std::collections::{BTreeMap, HashMap};

use longhaul_domain::{QueueName, RunAt, Timestamp, bounds, contract::store::QueueHead};

/// Owners that are remembered in one process, each with a name: some 20 MB. Beyond it a new owner's
/// tasks go behind all others, as without fair order.
const MAX_OWNERS: usize = 100_000;
/// Queues that are remembered: as many as operators have named, and a few more that users made up.
const MAX_QUEUES: usize = 1_000;
/// Tasks that this process has submitted to a backlog since the last read. More than this count as
/// a backlog that no read has seen yet; fewer hold up nothing.
const UNSEEN_BACKLOG: usize = 10;
/// The oldest due time that counts, in milliseconds: a day. Tasks of a type that no node runs wait
/// for ever. Without this bound, they would make a day's fairness depend on a year's totals.
const OLDEST_MS: u64 = 24 * 3_600 * 1_000;

/// The backlogs of all queues and priorities, as far as this process knows them.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    queues: HashMap<QueueName, BTreeMap<u8, Backlog>>,
    /// Owners in all backlogs.
    owners: usize,
}

/// The tasks that wait in one queue with one priority.
#[derive(Debug, Default)]
struct Backlog {
    /// The due time of the first task, at the last read.
    seen: Option<Timestamp>,
    /// What this process submitted since that read began.
    since_read: Submitted,
    /// What it submitted between the last two reads.
    before_read: Submitted,
    /// The last due time of each owner.
    last: HashMap<String, Timestamp>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Submitted {
    tasks: usize,
    first: Option<Timestamp>,
}

impl Backlog {
    /// The due time of the first waiting task; `None` where no tasks wait.
    fn head(&self) -> Option<Timestamp> {
        let unseen = self.since_read.tasks + self.before_read.tasks;
        if unseen <= UNSEEN_BACKLOG {
            return self.seen;
        }

        let first = [self.seen, self.since_read.first, self.before_read.first];
        first.into_iter().flatten().min()
    }

    /// The due time of an owner's next task.
    fn next_of(&self, owner: &str, head: Timestamp, now: Timestamp) -> Timestamp {
        let after_last = self.last.get(owner).map(|last| after(*last));
        let next = after_last.map_or(head, |next| next.max(head));
        next.max(now.minus_ms(OLDEST_MS)).min(now)
    }

    fn note_submit(&mut self, first: Timestamp, count: usize) {
        let submitted = &mut self.since_read;
        submitted.tasks = submitted.tasks.saturating_add(count);
        submitted.first = Some(submitted.first.map_or(first, |before| before.min(first)));
    }

    /// Forgets owners whose tasks have all been claimed. Returns whether tasks still wait.
    fn forget_passed(&mut self, oldest: Timestamp) -> bool {
        // Without a head, what was submitted since the read began may become one.
        let Some(head) = self.seen.into_iter().chain(self.since_read.first).min() else {
            return false;
        };

        self.last.retain(|_, last| *last >= head.max(oldest));
        true
    }
}

/// Consecutive due times for tasks of one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DueTimes {
    /// `None` where the task is due when the store has it.
    next: Option<Timestamp>,
    now: Timestamp,
}

impl DueTimes {
    pub(super) fn next(&mut self) -> RunAt {
        let Some(due_at) = self.next else {
            return RunAt::Now;
        };

        self.next = Some(after(due_at));
        RunAt::At(due_at.min(self.now))
    }
}

fn after(due_at: Timestamp) -> Timestamp {
    Timestamp::from_micros(due_at.as_micros().saturating_add(1))
}

impl Schedule {
    /// Assigns the due times of an owner's next `count` tasks. `now` is at most the store's time.
    pub(super) fn assign(
        &mut self,
        queue: &QueueName,
        priority: u8,
        owner: &str,
        count: usize,
        now: Timestamp,
    ) -> DueTimes {
        let is_full = self.owners >= MAX_OWNERS;
        let unordered = DueTimes { next: None, now };
        let Some(backlog) = self.backlog(queue, priority, is_full) else {
            return unordered;
        };
        let is_new_owner = !backlog.last.contains_key(owner);
        if is_new_owner && is_full {
            return unordered;
        }

        let span = i64::try_from(count.saturating_sub(1)).unwrap_or(i64::MAX);
        let head = backlog.head();
        let first = match head {
            Some(head) => backlog.next_of(owner, head, now),
            // A batch where no tasks wait ends now.
            None => Timestamp::from_micros(now.as_micros().saturating_sub(span)),
        };
        let last = Timestamp::from_micros(first.as_micros().saturating_add(span)).min(now);

        match backlog.last.get_mut(owner) {
            Some(before) => *before = last,
            None => drop(backlog.last.insert(owner.to_owned(), last)),
        }
        backlog.note_submit(first, count);
        self.owners += usize::from(is_new_owner);

        // A single task where no tasks wait is left as it is.
        let next = (head.is_some() || count > 1).then_some(first);
        DueTimes { next, now }
    }

    /// The backlog of this queue and priority; `None` for a new queue where there is no room.
    fn backlog(&mut self, queue: &QueueName, priority: u8, is_full: bool) -> Option<&mut Backlog> {
        if !self.queues.contains_key(queue) {
            if is_full || self.queues.len() >= MAX_QUEUES {
                return None;
            }
            self.queues.insert(queue.clone(), BTreeMap::new());
        }

        let backlogs = self.queues.get_mut(queue)?;
        Some(backlogs.entry(priority).or_default())
    }

    /// A read of the store begins. It may not see what is submitted from now on.
    pub(super) fn begin_read(&mut self) {
        for backlog in self.queues.values_mut().flat_map(BTreeMap::values_mut) {
            backlog.before_read = std::mem::take(&mut backlog.since_read);
        }
    }

    /// Takes what was read. Due times that a queue has passed are forgotten, and so are queues in
    /// which no tasks wait.
    pub(super) fn end_read(&mut self, heads: &[QueueHead], now: Timestamp) {
        for backlog in self.queues.values_mut().flat_map(BTreeMap::values_mut) {
            backlog.seen = None;
            backlog.before_read = Submitted::default();
        }

        let oldest = now.minus_ms(OLDEST_MS);
        for head in heads {
            // Tasks that are due later hold up nothing, and promoted tasks are not in the order.
            if head.due_at <= now && head.priority != bounds::FORWARD {
                self.see(head, oldest);
            }
        }

        for backlogs in self.queues.values_mut() {
            backlogs.retain(|_, backlog| backlog.forget_passed(oldest));
        }
        self.queues.retain(|_, backlogs| !backlogs.is_empty());
        self.owners = self.count_owners();
    }

    fn see(&mut self, head: &QueueHead, oldest: Timestamp) {
        if !self.queues.contains_key(&head.queue) && self.queues.len() >= MAX_QUEUES {
            return;
        }

        let backlogs = self.queues.entry(head.queue.clone()).or_default();
        let seen = &mut backlogs.entry(head.priority).or_default().seen;
        *seen = match *seen {
            Some(known) => Some(head_of_both(known, head.due_at, oldest)),
            None => Some(head.due_at),
        };
    }

    fn count_owners(&self) -> usize {
        let backlogs = self.queues.values().flat_map(BTreeMap::values);
        backlogs.map(|backlog| backlog.last.len()).sum()
    }
}

/// The head of two types in one queue: the earlier one. A type that has not been served since
/// `oldest` is passed over while another one waits.
fn head_of_both(one: Timestamp, other: Timestamp, oldest: Timestamp) -> Timestamp {
    match (one < oldest, other < oldest) {
        (true, false) => other,
        (false, true) => one,
        _ => one.min(other),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_testkit::names::queue_name;

    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    const DAY_US: i64 = 86_400_000_000;

    fn head_of(task_type: &str, micros: i64) -> QueueHead {
        QueueHead {
            queue: queue_name("q"),
            priority: 1,
            task_type: task_type.to_owned(),
            due_at: at(micros),
        }
    }

    fn head(micros: i64) -> Vec<QueueHead> {
        vec![head_of("t", micros)]
    }

    /// A schedule with a task that waits since `micros`.
    fn backlog(micros: i64, now: Timestamp) -> Schedule {
        let mut schedule = Schedule::default();
        read(&mut schedule, &head(micros), now);
        schedule
    }

    fn read(schedule: &mut Schedule, heads: &[QueueHead], now: Timestamp) {
        schedule.begin_read();
        schedule.end_read(heads, now);
    }

    fn run_at(schedule: &mut Schedule, owner: &str, count: usize, now: Timestamp) -> Vec<RunAt> {
        let mut due_times = schedule.assign(&queue_name("q"), 1, owner, count, now);
        (0..count).map(|_| due_times.next()).collect()
    }

    fn due_at(schedule: &mut Schedule, owner: &str, count: usize, now: Timestamp) -> Vec<i64> {
        let moment = |run_at| match run_at {
            RunAt::At(moment) => moment.as_micros(),
            RunAt::Now | RunAt::AfterMs(_) => panic!("{owner} got no due time"),
        };
        run_at(schedule, owner, count, now)
            .into_iter()
            .map(moment)
            .collect()
    }

    #[test]
    fn a_type_that_no_node_serves_is_passed_over_while_others_wait() {
        let now = at(10 * DAY_US);
        let mut schedule = Schedule::default();
        let waiting = now.as_micros() - 1_000;
        let heads = [head_of("unserved", 5), head_of("served", waiting)];
        read(&mut schedule, &heads, now);

        // Ten thousand tasks of one owner, and later one of another, which is due first.
        schedule.assign(&queue_name("q"), 1, "a", 10_000, now);
        let later = now.plus_ms(5_000);
        read(&mut schedule, &heads, later);
        assert_eq!(
            schedule.assign(&queue_name("q"), 1, "b", 1, later).next,
            Some(at(waiting))
        );
    }

    #[test]
    fn owners_alternate_one_task_each() {
        let now = at(5_000_000);
        let mut schedule = backlog(1_000, now);
        assert_eq!(due_at(&mut schedule, "a", 3, now), [1_000, 1_001, 1_002]);
        assert_eq!(due_at(&mut schedule, "b", 2, now), [1_000, 1_001]);
        assert_eq!(due_at(&mut schedule, "a", 2, now), [1_003, 1_004]);
        assert_eq!(due_at(&mut schedule, "b", 1, now), [1_002]);
    }

    #[test]
    fn a_newcomer_starts_at_the_current_head() {
        let now = at(5_000_000);
        let mut schedule = backlog(1_000, now);
        due_at(&mut schedule, "a", 100, now);
        read(&mut schedule, &head(1_050), now);
        assert_eq!(due_at(&mut schedule, "b", 1, now), [1_050]);
        assert_eq!(due_at(&mut schedule, "a", 1, now), [1_100]);
    }

    #[test]
    fn an_owner_whose_tasks_are_claimed_is_a_newcomer() {
        let now = at(5_000_000);
        let mut schedule = backlog(1_000, now);
        due_at(&mut schedule, "a", 10, now);
        read(&mut schedule, &head(2_000), now);
        assert_eq!(schedule.owners, 0);
        assert_eq!(due_at(&mut schedule, "a", 1, now), [2_000]);
    }

    #[test]
    fn where_no_tasks_wait_nothing_changes() {
        let mut schedule = Schedule::default();
        for n in 0..5 {
            assert_eq!(run_at(&mut schedule, "a", 1, at(n)), [RunAt::Now]);
        }

        read(&mut schedule, &[], at(100));
        read(&mut schedule, &[], at(200));
        assert!(schedule.queues.is_empty());

        // Tasks of tomorrow are no backlog.
        read(&mut schedule, &head(1_000), at(300));
        assert_eq!(run_at(&mut schedule, "a", 1, at(400)), [RunAt::Now]);
    }

    #[test]
    fn a_batch_where_no_tasks_wait_is_spaced_and_ends_now() {
        let mut schedule = Schedule::default();
        assert_eq!(due_at(&mut schedule, "a", 3, at(100)), [98, 99, 100]);
    }

    #[test]
    fn a_flood_counts_as_a_backlog_before_a_read_has_seen_it() {
        let mut schedule = Schedule::default();
        let now = at(5_000_000);
        due_at(&mut schedule, "a", 1_000, now);
        assert_eq!(due_at(&mut schedule, "b", 1, now), [4_999_001]);

        // A read that began earlier cannot have seen what was submitted after it.
        schedule.begin_read();
        due_at(&mut schedule, "c", 1_000, now);
        schedule.end_read(&[], now);
        assert_eq!(due_at(&mut schedule, "d", 1, now), [4_999_001]);

        // The next one does.
        read(&mut schedule, &[], now);
        assert_eq!(run_at(&mut schedule, "e", 1, now), [RunAt::Now]);
    }

    #[test]
    fn no_due_time_is_in_the_future() {
        let now = at(1_002);
        let mut schedule = backlog(1_000, now);
        assert_eq!(
            due_at(&mut schedule, "a", 4, now),
            [1_000, 1_001, 1_002, 1_002]
        );
        assert_eq!(due_at(&mut schedule, "a", 1, now), [1_002]);
    }

    #[test]
    fn tasks_that_no_node_runs_do_not_stop_the_virtual_time() {
        let now = at(3 * 24 * 3_600 * 1_000_000);
        let mut schedule = backlog(1_000, now);
        let oldest = now.minus_ms(OLDEST_MS).as_micros();
        assert_eq!(due_at(&mut schedule, "a", 1, now), [oldest]);
        read(&mut schedule, &head(1_000), at(now.as_micros() + 1_000_000));
        assert_eq!(schedule.owners, 0);
    }

    #[test]
    fn memory_is_bounded() {
        let now = at(5_000_000);
        let mut schedule = backlog(1_000, now);
        for n in 0..MAX_OWNERS {
            schedule.assign(&queue_name("q"), 1, &n.to_string(), 1, now);
        }

        assert_eq!(
            run_at(&mut schedule, "late", 2, now),
            [RunAt::Now, RunAt::Now]
        );
        assert_eq!(due_at(&mut schedule, "7", 1, now), [1_001]);
        read(&mut schedule, &head(2_000), now);
        for n in 0..MAX_QUEUES + 5 {
            schedule.assign(&queue_name(&n.to_string()), 1, "a", 1, now);
        }

        assert_eq!(schedule.queues.len(), MAX_QUEUES);
    }
}
