//! How a test drives Longhaul: in rounds, and by moving the clock.

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{Clock as _, StoreError, TaskRecord, Timestamp, time::millis};
use longhaul_node::ManualNode;

use super::{TestLonghaul, assertions::describe};

/// The most rounds and jumps of one call. Without it, a task that requeues itself forever would
/// hang the test.
const ROUNDS: usize = 10_000;

impl TestLonghaul {
    /// Runs everything that is due, and what that makes due, until nothing is. Each round includes
    /// the background maintenance (rescue, deadlines, retention). The clock stands still.
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
            "something was still due after {ROUNDS} rounds; a task that is put back at once for \
             ever?\n{open}"
        );
    }

    /// Runs until every task has ended. When nothing is due, the clock jumps to the next moment at
    /// which something is: a retry, a delayed task, a deadline.
    ///
    /// # Panics
    ///
    /// When open tasks cannot run: their type is not registered, or their queue is paused.
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

    /// Moves the clock forward. Tasks that become due run when the test runs a round.
    pub fn advance(&self, duration: Duration) {
        self.clock.advance_ms(millis(duration));
    }

    /// The current time of this Longhaul, for `run_at` and `deadline`.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Ends the worker as `kill -9` does, right after the `n`-th checkpoint from now on, counted
    /// over all tasks. The handler does not see that its checkpoint was stored, and all other
    /// running work is lost. The node counts as dead at once. The next round of the same run
    /// resumes the tasks, charged with a crash.
    ///
    /// # Panics
    ///
    /// When `n` is 0: the first checkpoint is number 1.
    #[track_caller]
    pub fn crash_after_checkpoints(&self, n: usize) {
        assert!(n > 0, "the first checkpoint is number 1");
        self.fuse.arm(n);
    }

    /// How many times the worker has crashed. Assert it, or a test may pass without its crash.
    pub fn crashes(&self) -> usize {
        self.fuse.crashes()
    }

    async fn round(&self) -> Round {
        // Locked for the whole round: only one round runs at a time.
        let mut place = self.node.lock().await;
        let node = match place.take() {
            Some(node) => node,
            None => must(self.start_node().await),
        };

        // Biased: a crash wins over a step that ends at the same time.
        tokio::select! {
            biased;
            () = self.fuse.blown() => {
                node.crash().await;
                self.fuse.replace();
                Round::Busy
            }

            claimed = node.step() => {
                *place = Some(node);
                if must(claimed) == 0 { Round::Idle } else { Round::Busy }
            }
        }
    }

    /// Starts the only live node: all earlier ones are dead.
    async fn start_node(&self) -> Result<ManualNode, StoreError> {
        ManualNode::start(
            Arc::clone(&self.longhaul.client),
            Arc::clone(&self.longhaul.limiter),
            self.settings.clone(),
            self.maintenance.clone(),
        )
        .await
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

/// The next moment at which a task becomes due or expires.
fn next_moment(open: &[TaskRecord], now: Timestamp) -> Option<Timestamp> {
    let due = open
        .iter()
        .filter(|task| task.status.is_claimable())
        .map(|task| task.due_at);
    let deadlines = open.iter().filter_map(|task| task.deadline_at);

    due.chain(deadlines).filter(|moment| *moment > now).min()
}

/// The store in memory fails only on a bug of ours.
fn must<T>(answer: Result<T, StoreError>) -> T {
    answer.unwrap_or_else(|error| panic!("the worker of the test failed: {error}"))
}
