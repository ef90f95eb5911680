//! For users' own tests: Longhaul in memory, with a clock that the test sets and a worker that the
//! test drives.
//!
//! Nothing here waits for time to pass. [`TestLonghaul::run_until_idle`] runs what is due and
//! returns when nothing is. [`TestLonghaul::advance`] moves the clock.
//! [`TestLonghaul::run_until_done`] does both until every task has ended.
//! Tasks, checkpoints, retries, children and limits behave as in production: it is the same worker,
//! on a store that passes the same tests as the databases.
//!
//! ```
//! use std::time::Duration;
//! use longhaul::{Class, Context, Outcome, Status, Task};
//! use longhaul::testing::{FakeProvider, ProviderError, TestLonghaul};
//!
//! struct Summarise { provider: FakeProvider }
//!
//! impl Task for Summarise {
//!     const TYPE: &'static str = "summarise";
//!     type Params = String;
//!     type Output = String;
//!
//!     async fn run(&self, ctx: Context<Self>) -> Outcome<String> {
//!         ctx.info("asking the provider");
//!         Ok(self.provider.call().await?)
//!     }
//!
//!     fn classify(&self, error: &(dyn std::error::Error + 'static)) -> Class {
//!         ProviderError::classify(error)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), longhaul::StoreError> {
//! let provider = FakeProvider::new().too_many_requests(Duration::from_secs(30)).text("short");
//! let longhaul = TestLonghaul::new().register(Summarise { provider: provider.clone() }).start();
//! let handle = longhaul.submit::<Summarise>("long".to_owned()).await?;
//!
//! longhaul.run_until_idle().await;
//! assert_eq!(longhaul.record(&handle).status, Status::Retrying);
//!
//! longhaul.advance(Duration::from_secs(30));
//! longhaul.run_until_idle().await;
//! longhaul.assert_ended(&handle, Status::Completed);
//! assert_eq!(longhaul.result(&handle), "short");
//! assert_eq!(provider.calls(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # Two clocks
//!
//! Due times, deadlines and rate limits follow the test's clock, which stands still until moved.
//! Waits of a running handler (`ctx.sleep`, `tokio::time`, the timeout of an attempt, a permit
//! within the type's `permit_wait`) follow tokio's clock. With `#[tokio::test(start_paused =
//! true)]`, which needs tokio's feature `test-util`, tokio skips such waits when nothing else can
//! run. That does not move the test's clock.
//!
//! # Crashes
//!
//! [`TestLonghaul::crash_after_checkpoints`] ends the worker as `kill -9` does, at a chosen
//! checkpoint. The node counts as dead at once, and the next round resumes from the checkpoint.

#![expect(
    clippy::panic,
    reason = "for tests: what is not as it must be stops the test, and says what is so"
)]

mod artifacts;
mod assertions;
mod builder;
mod fuse;
mod provider;
mod rounds;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use longhaul_domain::{
    Clock,
    contract::{RateLimiter, Store},
};
use longhaul_node::{ManualNode, WorkerSettings, maintenance::job::MaintenanceJob};
use longhaul_testkit::clock::TestClock;
use tokio::sync::Mutex;

pub use builder::TestBuilder;
pub use provider::{FakeProvider, ProviderError};

use crate::{Builder, Longhaul};
use fuse::Fuse;

/// Longhaul in memory, driven by a test. See the [module](self).
///
/// It dereferences to [`Longhaul`]: a test submits, cancels and reads as the program does, and can
/// pass it as `&Longhaul`. It has no database, so [`Longhaul::submit_in`] is refused.
///
/// No task runs by itself: a wait for a handle's `result()` or `ended()` before the task ran never
/// ends. [`Self::result`] does not wait; it says why there is no result.
#[derive(Debug)]
pub struct TestLonghaul {
    longhaul: Longhaul,
    clock: TestClock,
    fuse: Arc<Fuse>,
    settings: WorkerSettings,
    maintenance: Vec<Arc<dyn MaintenanceJob>>,
    /// None before the first round and after a crash. The next round starts one.
    node: Mutex<Option<ManualNode>>,
}

impl TestLonghaul {
    /// Register task types, then start: `TestLonghaul::new().register(MyTask).start()`.
    #[expect(
        clippy::new_ret_no_self,
        reason = "what a test writes first; there is nothing to be had before the types"
    )]
    pub fn new() -> TestBuilder {
        TestBuilder::new()
    }

    /// The rate limiter of this Longhaul, to see or change which limits are used up.
    pub fn limiter(&self) -> &dyn RateLimiter {
        &*self.longhaul.limiter
    }
}

impl std::ops::Deref for TestLonghaul {
    type Target = Longhaul;

    fn deref(&self) -> &Longhaul {
        &self.longhaul
    }
}

/// A Longhaul on a store of the test's own, with this clock: for tests that start a worker as
/// production does and stand between it and its store.
pub fn on(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Builder {
    Builder::on(store, clock)
}
