//! Turns: nobody's flood holds up another's task (R13).
//!
//! Within a queue and a priority the store hands out tasks by the moment at which they were due. A task that is due at once
//! gets its place in that order here, when it is submitted: a moment that has passed. Whoever comes new joins at the head of
//! the line, and those with many tasks take turns, one task each. Where nobody waits, nothing changes.
//!
//! Each process decides by itself, from what it sees in the store once a second. Two processes may give the same place
//! twice, which costs a turn and nothing else.

mod lines;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use longhaul_domain::{NewTask, RunAt, StoreError, Timestamp, contract::Store};
use tokio::{sync::watch, time::Instant};

use lines::{Lines, Places};

/// How often the lines are looked at while anybody submits.
const EVERY: Duration = Duration::from_secs(1);
/// How long after the last submit they still are.
const WATCHED_FOR: Duration = Duration::from_secs(60);
/// The first submit after that waits for a look, at most so long: it would not know of a line.
const PATIENCE: Duration = Duration::from_millis(500);

/// The turns of all who submit in this process.
#[derive(Debug)]
pub(crate) struct Turns {
    store: Arc<dyn Store>,
    state: Mutex<State>,
    /// How often somebody has looked.
    looks: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    lines: Lines,
    /// The store's time, and when it told it.
    clock: Option<(Timestamp, Instant)>,
    /// When somebody last asked for a place.
    asked: Option<Instant>,
    /// Whether somebody looks once a second.
    is_watched: bool,
    /// Whether that somebody has looked.
    is_known: bool,
}

impl State {
    /// At most the store's time: the answer was under way for a while.
    fn now(&self) -> Option<Timestamp> {
        let (told, at) = self.clock?;
        let since = i64::try_from(at.elapsed().as_micros()).unwrap_or(i64::MAX);
        Some(Timestamp::from_micros(
            told.as_micros().saturating_add(since),
        ))
    }
}

impl Turns {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            state: Mutex::default(),
            looks: watch::Sender::new(0),
        })
    }

    /// Gives each task that is due at once its place in line.
    pub(crate) async fn place(self: &Arc<Self>, tasks: &mut [NewTask]) {
        if !tasks.iter().any(is_due) {
            return;
        }
        let mut looks = self.looks.subscribe();
        if !self.is_known()
            && tokio::time::timeout(PATIENCE, looks.changed())
                .await
                .is_err()
        {
            tracing::debug!("a task is submitted without a look at its line");
        }
        self.give(tasks);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the lines are known. If nobody watches them, somebody does from now on.
    fn is_known(self: &Arc<Self>) -> bool {
        let mut state = self.state();
        state.asked = Some(Instant::now());
        if !state.is_watched {
            state.is_watched = true;
            tokio::spawn(watch_lines(Watching(Arc::downgrade(self))));
        }
        state.is_known
    }

    fn give(&self, tasks: &mut [NewTask]) {
        let mut state = self.state();
        let Some(now) = state.now() else { return };
        if tasks.iter().all(is_due)
            && tasks
                .windows(2)
                .all(|pair| is_same_line(&pair[0], &pair[1]))
        {
            let Some(first) = tasks.first() else { return };
            let mut places =
                state
                    .lines
                    .join(&first.queue, first.priority, &first.owner, tasks.len(), now);
            tasks
                .iter_mut()
                .for_each(|task| task.run_at = places.take());
            return;
        }
        let mut counts: HashMap<(&str, u8, &str), usize> = HashMap::new();
        for task in tasks.iter().filter(|task| is_due(task)) {
            *counts
                .entry((&task.queue, task.priority, &task.owner))
                .or_default() += 1;
        }
        let join = |((queue, priority, owner), count): ((&str, u8, &str), usize)| {
            let places = state.lines.join(queue, priority, owner, count, now);
            ((queue.to_owned(), priority, owner.to_owned()), places)
        };
        let mut places: HashMap<(String, u8, String), Places> =
            counts.into_iter().map(join).collect();
        drop(state);
        for task in tasks.iter_mut().filter(|task| is_due(task)) {
            // A key of its own for each look-up; batches of several lines are rare, and their rows cost far more.
            let line = (
                task.queue.to_string(),
                task.priority,
                task.owner.to_string(),
            );
            task.run_at = places.get_mut(&line).map_or(RunAt::Now, Places::take);
        }
    }

    async fn look(&self) -> Result<(), StoreError> {
        self.state().lines.begin_look();
        let seen = tokio::try_join!(self.store.list_heads(), self.store.now());
        let mut state = self.state();
        // Whoever waits goes on, also if there was nothing to be seen.
        state.is_known = true;
        self.looks.send_modify(|looks| *looks += 1);
        let (heads, told) = seen?;
        state.clock = Some((told, Instant::now()));
        state.lines.end_look(&heads, told);
        Ok(())
    }

    fn is_wanted(&self) -> bool {
        self.state()
            .asked
            .is_some_and(|at| at.elapsed() < WATCHED_FOR)
    }
}

fn is_due(task: &NewTask) -> bool {
    task.run_at == RunAt::Now
}

fn is_same_line(one: &NewTask, other: &NewTask) -> bool {
    (&one.queue, one.priority, &one.owner) == (&other.queue, other.priority, &other.owner)
}

/// Somebody looks while this lives. Whoever submits after it begins anew.
struct Watching(Weak<Turns>);

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(turns) = self.0.upgrade() {
            let mut state = turns.state();
            (state.is_watched, state.is_known) = (false, false);
        }
    }
}

/// Looks at the lines until nobody submits any more.
async fn watch_lines(watching: Watching) {
    let mut is_silent = false;
    while let Some(turns) = watching.0.upgrade().filter(|turns| turns.is_wanted()) {
        match turns.look().await {
            Ok(()) => is_silent = false,
            Err(error) if !is_silent => {
                tracing::warn!(%error, "nobody knows who waits; new tasks go by what was known");
                is_silent = true;
            }
            Err(_) => {}
        }
        drop(turns);
        tokio::time::sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use longhaul_domain::{Json, contract::store::QueueHead, event::OutboxPolicy};
    use longhaul_testkit::{clock::TestClock, reference::MemoryStore};

    use super::*;

    /// What a batch of these owners is given behind somebody who waits since 1,000; those of nobody are due later.
    fn given(owners: &[&str]) -> Vec<RunAt> {
        let turns = Turns::new(Arc::new(MemoryStore::new(
            TestClock::new(),
            OutboxPolicy::default(),
        )));
        let told = Timestamp::from_micros(5_000_000);
        let (queue, task_type) = ("q".to_owned(), "t".to_owned());
        let head = QueueHead {
            queue,
            priority: 1,
            task_type,
            due_at: Timestamp::from_micros(1_000),
        };
        turns.state().clock = Some((told, Instant::now()));
        turns.state().lines.end_look(&[head], told);
        let task = |owner: &&str| {
            let run_at = if owner.is_empty() {
                RunAt::AfterMs(9)
            } else {
                RunAt::Now
            };
            NewTask {
                run_at,
                ..NewTask::new(owner, "t", "q", Json::trusted("1"))
            }
        };
        let mut tasks: Vec<NewTask> = owners.iter().map(task).collect();
        turns.give(&mut tasks);
        tasks.into_iter().map(|task| task.run_at).collect()
    }

    #[test]
    fn a_batch_of_one_owner_and_one_of_several_get_places_by_the_same_rule() {
        let at = |micros| RunAt::At(Timestamp::from_micros(micros));
        assert_eq!(
            given(&["ann", "ann", "ann"]),
            [at(1_000), at(1_001), at(1_002)]
        );
        assert_eq!(
            given(&["ann", "bob", "ann"]),
            [at(1_000), at(1_000), at(1_001)]
        );
        assert_eq!(given(&["ann"]), [at(1_000)]);
    }

    #[test]
    fn what_is_due_later_stands_in_no_line() {
        let at = |micros| RunAt::At(Timestamp::from_micros(micros));
        assert_eq!(
            given(&["ann", "", "ann"]),
            [at(1_000), RunAt::AfterMs(9), at(1_001)]
        );
        assert_eq!(given(&["", ""]), [RunAt::AfterMs(9), RunAt::AfterMs(9)]);
    }
}
