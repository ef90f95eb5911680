//! What the small suites share: a case is a sentence and the code that proves it, and makes what it needs itself.
//!
//! A backend supplies a way to make a fresh thing; how it is set up is the argument of that factory. Each case runs on a
//! runtime of its own, beside the others.

use std::{any::Any, fmt, ops::Deref, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use libtest_mimic::{Arguments, Trial};
use longhaul_domain::TaskId;
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};
use tokio::runtime::Builder;

use crate::clock::TestClock;

/// The command line of a suite on real servers. Its cases wait more than they compute, so twice as many run at once as there are
/// processors, unless it says otherwise.
pub fn arguments() -> Arguments {
    let mut arguments = Arguments::from_args();
    arguments
        .test_threads
        .get_or_insert_with(|| std::thread::available_parallelism().map_or(2, |all| 2 * all.get()));
    arguments
}

/// Makes a fresh `T` that is set up as `S` says.
pub type Factory<S, T> = Arc<dyn Fn(S) -> BoxFuture<'static, Fresh<T>> + Send + Sync>;

/// A fresh thing for one case, and the clock that it goes by.
pub struct Fresh<T: ?Sized> {
    subject: Arc<T>,
    pub clock: TestClock,
    /// Whatever must live as long as the thing; dropping it cleans up.
    _keep: Option<Box<dyn Any + Send + Sync>>,
}

impl<T: ?Sized> Fresh<T> {
    pub fn new(
        subject: Arc<T>,
        clock: TestClock,
        keep: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        Self {
            subject,
            clock,
            _keep: keep,
        }
    }

    /// The thing, to be shared with another task of the case.
    pub fn share(&self) -> Arc<T> {
        Arc::clone(&self.subject)
    }
}

impl<T: ?Sized> Deref for Fresh<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.subject
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Fresh<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fresh")
            .field("subject", &&self.subject)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// A sentence about a contract and the code that proves it.
pub(crate) struct Case<F> {
    pub(crate) name: &'static str,
    pub(crate) run: fn(F) -> BoxFuture<'static, ()>,
}

/// One trial for each case, named `{backend}::{suite}::{sentence}`.
pub(crate) fn trials<F>(backend: &str, suite: &str, factory: &F, cases: Vec<Case<F>>) -> Vec<Trial>
where
    F: Clone + Send + 'static,
{
    let trial = |case: Case<F>| {
        let factory = factory.clone();
        Trial::test(format!("{backend}::{suite}::{}", case.name), move || {
            let runtime = Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?;
            runtime.block_on((case.run)(factory));
            Ok(())
        })
    };
    cases.into_iter().map(trial).collect()
}

/// A table of cases that are named as their functions are: a name that is written twice comes to differ.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        vec![$($crate::suite::Case { name: stringify!($case), run: |make| Box::pin($case(make)) }),*]
    };
}
pub(crate) use cases;

/// Nothing that a case waits for takes this long, on a machine that is busy with all the others.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the future gives; it panics instead of hanging.
pub(crate) async fn within_patience<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("what the case waits for comes")
}

pub(crate) fn random_task_id() -> TaskId {
    TaskId(uuid::Builder::from_random_bytes(rand::rng().random()).into_uuid())
}

/// Numbers that are the same in every run, so that a failure can be seen again.
pub(crate) struct Dice(StdRng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// A number from 0 to one less than `sides`.
    pub(crate) fn below(&mut self, sides: u64) -> u64 {
        self.0.next_u64() % sides
    }
}
