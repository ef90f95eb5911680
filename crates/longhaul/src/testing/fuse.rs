//! The fuse: counts checkpoints down and crashes the worker at the last one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use longhaul_testkit::reference::CheckpointWatch;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Fuse {
    state: Mutex<State>,
    blew: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Checkpoints until the crash. None while it is not armed.
    left: Option<usize>,
    is_blown: bool,
    crashes: usize,
}

impl Fuse {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of a handler must not disable the fuse.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn arm(&self, checkpoints: usize) {
        self.state().left = Some(checkpoints);
    }

    /// Counts one stored checkpoint. `true` when the worker has crashed.
    fn burn(&self) -> bool {
        let mut state = self.state();
        state.left = state.left.map(|left| left.saturating_sub(1));
        if state.left == Some(0) {
            (state.left, state.is_blown) = (None, true);
            state.crashes += 1;
            self.blew.notify_one();
        }

        state.is_blown
    }

    pub(super) fn is_blown(&self) -> bool {
        self.state().is_blown
    }

    /// Waits for the crash.
    pub(super) async fn blown(&self) {
        self.blew.notified().await;
    }

    /// Ends the crash: later writes belong to the next worker.
    pub(super) fn replace(&self) {
        self.state().is_blown = false;
    }

    pub(super) fn crashes(&self) -> usize {
        self.state().crashes
    }
}

#[async_trait]
impl CheckpointWatch for Fuse {
    async fn before(&self) {
        if self.is_blown() {
            // The worker is dead: what still runs of it writes nothing more.
            std::future::pending().await
        }
    }

    async fn after(&self) {
        if self.burn() {
            // The handler must not learn that its checkpoint was stored.
            std::future::pending().await
        }
    }
}
