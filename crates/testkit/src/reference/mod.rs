//! The reference store: the store contract in memory, as plain as possible.
//!
//! The databases are compared with it, so it must never be clever: one lock, plain maps and the
//! domain's decisions. It loses everything when the process ends and is not for production.

mod state;

// The contract, a trait a file.
mod attempt_data;
mod leases;
mod maintenance;
mod outbox;
mod queues;
mod task_commands;
mod task_reads;
mod tokens;

// What the commands do to the tables.
mod admin;
mod artifacts;
mod attempts;
mod logs;
mod submit;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use longhaul_domain::{
    Clock, NodeId, NodeRecord, StoreError, TaskId, TaskRecord, Timestamp, event::OutboxPolicy,
    lifecycle::Transition,
};
use rand::{SeedableRng, rngs::StdRng};

use crate::clock::TestClock;
use state::State;

/// The store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    clock: TestClock,
    state: Mutex<State>,
    checkpoint_watch: Option<Arc<dyn CheckpointWatch>>,
    refused_finishes: Mutex<VecDeque<StoreError>>,
    node_watch: Option<Arc<dyn NodeWatch>>,
}

/// Observes the saving of checkpoints, for tests that crash there.
#[async_trait]
pub trait CheckpointWatch: Send + Sync + std::fmt::Debug {
    /// Called before the store reads the checkpoint.
    async fn before(&self);
    /// Called after the checkpoint is stored and before the caller gets its answer.
    async fn after(&self);
}

/// Observes the calls that nodes make, for tests with a slow or unreachable store.
#[async_trait]
pub trait NodeWatch: Send + Sync + std::fmt::Debug {
    /// Called before the store executes the request. An error becomes the caller's answer, and the
    /// store does not execute the request.
    async fn before(&self, operation: &'static str) -> Result<(), StoreError>;
    /// Called after the request is executed and before the caller gets its answer.
    async fn after(&self, operation: &'static str);
}

impl MemoryStore {
    pub fn new(clock: TestClock, outbox: OutboxPolicy) -> Self {
        let state = State::new(outbox, StdRng::from_rng(&mut rand::rng()));
        Self::with(clock, state)
    }

    /// A store whose ids, tokens and jitter depend on `seed` alone. With [`TestClock::fixed`], the
    /// same calls in the same order give identical answers.
    pub fn seeded(clock: TestClock, outbox: OutboxPolicy, seed: u64) -> Self {
        let state = State::new(outbox, StdRng::seed_from_u64(seed));
        Self::with(clock, state)
    }

    fn with(clock: TestClock, state: State) -> Self {
        Self {
            clock,
            state: Mutex::new(state),
            checkpoint_watch: None,
            refused_finishes: Mutex::default(),
            node_watch: None,
        }
    }

    #[must_use]
    pub fn watched(mut self, watch: Arc<dyn CheckpointWatch>) -> Self {
        self.checkpoint_watch = Some(watch);
        self
    }

    /// Answers each of the next finishes with one of these errors and changes nothing.
    pub fn refuse_finishes(&self, errors: impl IntoIterator<Item = StoreError>) {
        self.refused_finishes
            .lock()
            .expect("a thread panicked under this lock")
            .extend(errors);
    }

    #[must_use]
    pub fn with_node_watch(mut self, watch: Arc<dyn NodeWatch>) -> Self {
        self.node_watch = Some(watch);
        self
    }

    /// One call of a node, seen by the node watch if there is one.
    async fn node_call<T: Send>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&mut State, Timestamp) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        if let Some(watch) = &self.node_watch {
            watch.before(operation).await?;
        }

        // The lock must be released before the watch is awaited.
        let done = {
            let (mut state, now) = self.begin();
            call(&mut state, now)
        };

        if let Some(watch) = &self.node_watch {
            watch.after(operation).await;
        }

        done
    }

    /// Shows all rows without copying them and without reading the clock.
    pub fn look<R>(
        &self,
        look: impl FnOnce(&BTreeMap<TaskId, TaskRecord>, &BTreeMap<NodeId, NodeRecord>) -> R,
    ) -> R {
        let state = self
            .state
            .lock()
            .expect("an operation panicked under this lock");
        look(&state.tasks, &state.nodes)
    }

    /// Writes a task without any guard, and its parent's counters too if `counts_in_parent`. For
    /// tests that plant a bug and check that it is caught.
    pub fn overwrite_task(&self, transition: Transition, counts_in_parent: bool) {
        let (mut state, now) = self.begin();
        if counts_in_parent {
            state.apply(transition, now);
        } else {
            state.apply_alone(transition);
        }
    }

    /// Writes a node without any guard, for the same tests.
    pub fn overwrite_node(&self, node: NodeRecord) {
        self.begin().0.nodes.insert(node.id, node);
    }

    /// Locks the tables for one operation. The time is read under the lock, so that later changes
    /// have later times.
    fn begin(&self) -> (MutexGuard<'_, State>, Timestamp) {
        let mut state = self
            .state
            .lock()
            .expect("an operation panicked under this lock");
        let now = self.clock.now();
        state.moved.clear();

        (state, now)
    }
}
