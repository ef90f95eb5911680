//! How a test makes Longhaul work: in rounds, and by moving the clock.

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{Clock as _, StoreError, Task as Record, Timestamp};
use longhaul_worker::ManualWorker;

use super::{TestLonghaul, assertions::describe};

/// Rounds and jumps of one call. A task that puts itself back for ever would keep a test busy for ever.
const ROUNDS: usize = 10_000;

impl TestLonghaul {
    /// Runs everything that is due, and what becomes due by that, until nothing is. The background duties (rescue,
    /// deadlines, retention) have their turn in each round. The clock does not move.
    ///
    /// # Panics
    ///
    /// When there is still something due after 10,000 rounds.
    pub async fn run_until_idle(&self) {
        for _ in 0..ROUNDS {
            if self.round().await == Round::Idle {
                return;
            }
        }
        let open = self.describe_open();
        panic!(
            "something was still due after {ROUNDS} rounds; a task that is put back at once for ever?\n{open}"
        );
    }

    /// Runs until every task has ended. When nothing is due the clock jumps to the next moment at which something is:
    /// a retry, a delayed task, a deadline.
    ///
    /// # Panics
    ///
    /// When tasks are open that no jump helps: of a type that is not registered, or in a queue that is paused.
    pub async fn run_until_done(&self) {
        for _ in 0..ROUNDS {
            self.run_until_idle().await;
            let open = self.open_records();
            if open.is_empty() {
                return;
            }
            let now = self.now();
            match next_moment(&open, now) {
                Some(moment) => self
                    .clock
                    .advance_ms(moment.micros_since(now).div_ceil(1_000)),
                None => panic!(
                    "nothing will ever run these tasks:\n{}",
                    self.describe_open()
                ),
            }
        }
        panic!(
            "tasks were still open after {ROUNDS} jumps of the clock:\n{}",
            self.describe_open()
        );
    }

    /// Moves the clock forward. What becomes due by that runs when the test says so.
    pub fn advance(&self, duration: Duration) {
        self.clock
            .advance_ms(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    }

    /// The time that everything in this Longhaul goes by, for `run_at` and `deadline`.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Ends the worker as `kill -9` does, right after the `n`-th checkpoint from now on was stored; those of all tasks
    /// count. The handler does not hear that its checkpoint was stored, and whatever else runs is lost too. The node
    /// counts as dead at once: the tasks go on in the next round of the same run, charged with a crash.
    ///
    /// # Panics
    ///
    /// When `n` is 0: the first checkpoint is number 1.
    #[track_caller]
    pub fn crash_after_checkpoints(&self, n: usize) {
        assert!(n > 0, "the first checkpoint is number 1");
        self.fuse.arm(n);
    }

    /// How many times the worker has crashed. A test of a crash that never came tests nothing.
    pub fn crashes(&self) -> usize {
        self.fuse.crashes()
    }

    async fn round(&self) -> Round {
        let mut place = self.worker.lock().await;
        let worker = match place.take() {
            Some(worker) => worker,
            None => must(self.start_worker().await),
        };
        tokio::select! {
            biased;
            () = self.fuse.blown() => {
                worker.crash().await;
                self.fuse.replace();
                Round::Busy
            }
            claimed = worker.step() => {
                *place = Some(worker);
                if must(claimed) == 0 { Round::Idle } else { Round::Busy }
            }
        }
    }

    /// The only worker there is: all before it are dead.
    async fn start_worker(&self) -> Result<ManualWorker, StoreError> {
        let services = Arc::clone(self.longhaul.services());
        ManualWorker::start(services, self.settings.clone(), self.duties.clone(), true).await
    }

    fn describe_open(&self) -> String {
        let open: Vec<String> = self.open_records().iter().map(describe).collect();
        open.join("\n")
    }
}

#[derive(PartialEq, Eq)]
enum Round {
    Busy,
    Idle,
}

/// The first moment to come at which one of the tasks can go on, or ends.
fn next_moment(open: &[Record], now: Timestamp) -> Option<Timestamp> {
    let due = open
        .iter()
        .filter(|task| task.status.is_claimable())
        .map(|task| task.due_at);
    let deadlines = open.iter().filter_map(|task| task.deadline_at);
    due.chain(deadlines).filter(|moment| *moment > now).min()
}

/// The store in memory refuses only what is a mistake of ours.
fn must<T>(answer: Result<T, StoreError>) -> T {
    answer.unwrap_or_else(|error| panic!("the worker of the test failed: {error}"))
}
