//! Fair order: one owner's flood does not hold up another owner's task.
//!
//! Within a queue and a priority the store hands out tasks by their due time. A task that is due at
//! once gets its due time here, when it is submitted: a moment in the past. A newcomer's first task
//! gets the due time of the oldest waiting one, and owners with many tasks alternate, one task
//! each. Where no tasks wait, nothing changes.
//!
//! Each process decides by itself, from what it reads from the store once a second. Two processes
//! may assign the same due time twice, which costs one owner one position and nothing else.

mod schedule;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use longhaul_domain::{NewTask, QueueName, RunAt, StoreError, Timestamp, contract::Store};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use schedule::{DueTimes, Schedule};

/// How often the waiting tasks are read while tasks are submitted.
const READ_EVERY: Duration = Duration::from_secs(1);
/// How long after the last submit they are still read.
const READ_FOR: Duration = Duration::from_secs(60);
/// The first submit after a pause waits for a read, at most this long: until then no backlog is
/// known.
const FIRST_READ_TIMEOUT: Duration = Duration::from_millis(500);

/// The fair order of all tasks that this process submits.
#[derive(Debug)]
pub(crate) struct FairOrder {
    store: Arc<dyn Store>,
    /// Never held across an await. One lock for a whole batch keeps its due times together.
    state: Mutex<State>,
    /// How many reads have ended.
    reads: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    schedule: Schedule,
    /// The store's time, and when it was read.
    clock: Option<(Timestamp, Instant)>,
    last_submit: Option<Instant>,
    /// Whether a reader runs.
    is_reading: bool,
    /// Whether that reader has read once.
    has_read: bool,
}

impl State {
    /// At most the store's time: the answer was under way for a while.
    fn now(&self) -> Option<Timestamp> {
        let (reading, read_at) = self.clock?;
        let elapsed = i64::try_from(read_at.elapsed().as_micros()).unwrap_or(i64::MAX);
        let micros = reading.as_micros().saturating_add(elapsed);
        Some(Timestamp::from_micros(micros))
    }
}

impl FairOrder {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            state: Mutex::default(),
            reads: watch::Sender::new(0),
        })
    }

    /// Gives each task that is due at once its due time in the order.
    pub(crate) async fn assign(self: &Arc<Self>, tasks: &mut [NewTask]) {
        if !tasks.iter().any(is_due_at_once) {
            return;
        }

        // The subscription comes first, so that a read that ends in between is not missed.
        let mut reads = self.reads.subscribe();
        let has_read = self.ensure_reader();
        if !has_read && timeout(FIRST_READ_TIMEOUT, reads.changed()).await.is_err() {
            tracing::debug!("reading the waiting tasks takes long; a task is submitted unordered");
        }

        self.assign_now(tasks);
    }

    /// Starts a reader where none runs. Returns whether it has read.
    fn ensure_reader(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        state.last_submit = Some(Instant::now());
        if !state.is_reading {
            state.is_reading = true;
            // Under the lock, so that one reader runs. It has a weak reference and ends with the
            // order.
            tokio::spawn(read_regularly(Reader(Arc::downgrade(self))));
        }

        state.has_read
    }

    fn assign_now(&self, tasks: &mut [NewTask]) {
        let mut state = self.state.lock();
        let Some(now) = state.now() else { return };
        let Some(first) = tasks.first() else { return };

        let is_uniform = tasks
            .iter()
            .all(|task| is_due_at_once(task) && key_of(task) == key_of(first));
        if is_uniform {
            let (queue, priority, owner) = key_of(first);
            let mut due_times = state
                .schedule
                .assign(queue, priority, owner, tasks.len(), now);
            for task in tasks {
                task.run_at = due_times.next();
            }
            return;
        }

        let mut by_key = assign_groups(&mut state.schedule, tasks, now);
        drop(state);

        for task in tasks.iter_mut().filter(|task| is_due_at_once(task)) {
            // An owned key for each task. Mixed batches are rare, and their rows cost far more.
            let key = (task.queue.clone(), task.priority, task.owner.to_string());
            task.run_at = by_key.get_mut(&key).map_or(RunAt::Now, DueTimes::next);
        }
    }

    async fn read(&self) -> Result<(), StoreError> {
        self.state.lock().schedule.begin_read();
        let read = tokio::try_join!(self.store.list_heads(), self.store.now());
        let mut state = self.state.lock();

        // Submits that wait for this read continue, even when it failed.
        state.has_read = true;
        self.reads.send_modify(|reads| *reads += 1);

        let (heads, now) = read?;
        state.clock = Some((now, Instant::now()));
        state.schedule.end_read(&heads, now);
        Ok(())
    }

    fn is_in_use(&self) -> bool {
        self.state
            .lock()
            .last_submit
            .is_some_and(|at| at.elapsed() < READ_FOR)
    }
}

type OwnedKey = (QueueName, u8, String);

/// Assigns due times to each queue, priority and owner of a mixed batch.
fn assign_groups(
    schedule: &mut Schedule,
    tasks: &[NewTask],
    now: Timestamp,
) -> HashMap<OwnedKey, DueTimes> {
    let mut counts: HashMap<(&QueueName, u8, &str), usize> = HashMap::new();
    for task in tasks.iter().filter(|task| is_due_at_once(task)) {
        *counts.entry(key_of(task)).or_default() += 1;
    }

    let mut by_key = HashMap::with_capacity(counts.len());
    for ((queue, priority, owner), count) in counts {
        let due_times = schedule.assign(queue, priority, owner, count, now);
        by_key.insert((queue.clone(), priority, owner.to_owned()), due_times);
    }

    by_key
}

fn is_due_at_once(task: &NewTask) -> bool {
    task.run_at == RunAt::Now
}

fn key_of(task: &NewTask) -> (&QueueName, u8, &str) {
    (&task.queue, task.priority, &task.owner)
}

/// A reader that runs. After its end the next submit starts another one.
struct Reader(Weak<FairOrder>);

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(order) = self.0.upgrade() {
            let mut state = order.state.lock();
            state.is_reading = false;
            state.has_read = false;
        }
    }
}

/// Reads the waiting tasks until no more are submitted.
async fn read_regularly(reader: Reader) {
    let mut has_warned = false;
    while let Some(order) = reader.0.upgrade() {
        if !order.is_in_use() {
            return;
        }

        match order.read().await {
            Ok(()) => has_warned = false,
            Err(error) if !has_warned => {
                tracing::warn!(
                    %error,
                    "reading the waiting tasks failed; new tasks are ordered by the last read"
                );
                has_warned = true;
            }
            Err(_) => {}
        }

        drop(order);
        tokio::time::sleep(READ_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use longhaul_domain::{Json, contract::store::QueueHead, event::OutboxPolicy};
    use longhaul_testkit::{clock::TestClock, names::queue_name, reference::MemoryStore};

    use super::*;

    /// The due times of a batch of these owners, while a task waits since 1,000. Tasks of the owner
    /// "" are due later.
    fn assigned(owners: &[&str]) -> Vec<RunAt> {
        let store = MemoryStore::new(TestClock::new(), OutboxPolicy::default());
        let order = FairOrder::new(Arc::new(store));
        let now = Timestamp::from_micros(5_000_000);
        let head = QueueHead {
            queue: queue_name("q"),
            priority: 1,
            task_type: "t".to_owned(),
            due_at: Timestamp::from_micros(1_000),
        };

        order.state.lock().clock = Some((now, Instant::now()));
        order.state.lock().schedule.end_read(&[head], now);
        let task = |owner: &&str| {
            let run_at = if owner.is_empty() {
                RunAt::AfterMs(9)
            } else {
                RunAt::Now
            };

            NewTask {
                run_at,
                ..NewTask::new(owner, "t", queue_name("q"), Json::trusted("1"))
            }
        };

        let mut tasks: Vec<NewTask> = owners.iter().map(task).collect();
        order.assign_now(&mut tasks);
        tasks.into_iter().map(|task| task.run_at).collect()
    }

    #[test]
    fn uniform_and_mixed_batches_are_ordered_by_the_same_rule() {
        let at = |micros| RunAt::At(Timestamp::from_micros(micros));
        assert_eq!(
            assigned(&["ann", "ann", "ann"]),
            [at(1_000), at(1_001), at(1_002)]
        );
        assert_eq!(
            assigned(&["ann", "bob", "ann"]),
            [at(1_000), at(1_000), at(1_001)]
        );

        assert_eq!(assigned(&["ann"]), [at(1_000)]);
    }

    #[test]
    fn tasks_that_are_due_later_are_not_ordered() {
        let at = |micros| RunAt::At(Timestamp::from_micros(micros));
        assert_eq!(
            assigned(&["ann", "", "ann"]),
            [at(1_000), RunAt::AfterMs(9), at(1_001)]
        );
        assert_eq!(assigned(&["", ""]), [RunAt::AfterMs(9), RunAt::AfterMs(9)]);
    }
}
