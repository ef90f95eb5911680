//! What the small suites share. A case is a sentence and the code that checks it.
//!
//! A backend supplies a factory that makes a fresh subject; the argument of the factory says how to
//! set it up. Each case runs on its own runtime, in parallel with the others.

use std::{any::Any, fmt, ops::Deref, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use libtest_mimic::{Arguments, Trial};
use longhaul_domain::TaskId;
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};
use tokio::runtime::Builder;

use crate::clock::TestClock;

/// The command line of a suite on real servers. Its cases mostly wait, so by default twice as many
/// run at once as there are processors.
pub fn arguments() -> Arguments {
    let mut arguments = Arguments::from_args();
    arguments
        .test_threads
        .get_or_insert_with(|| std::thread::available_parallelism().map_or(2, |all| 2 * all.get()));
    arguments
}

/// Makes a fresh `T`, set up according to `S`.
pub type Factory<S, T> = Arc<dyn Fn(S) -> BoxFuture<'static, Fresh<T>> + Send + Sync>;

/// A fresh subject for one case, and its clock.
pub struct Fresh<T: ?Sized> {
    subject: Arc<T>,
    pub clock: TestClock,
    /// A guard that must live as long as the subject. Dropping it cleans up.
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

    /// The subject, to be shared with another task of the case.
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

/// A sentence about a contract and the code that checks it.
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

/// A table of cases, each named like its function.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        vec![$($crate::suite::Case {
            name: stringify!($case),
            run: |make| Box::pin($case(make)),
        }),*]
    };
}
pub(crate) use cases;

/// The longest wait of a case, on a machine that is busy with all the other cases.
const DEADLINE: Duration = Duration::from_secs(60);

/// The future's output. Panics instead of waiting forever.
pub(crate) async fn within_deadline<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("the case waited too long")
}

pub(crate) fn random_task_id() -> TaskId {
    TaskId(uuid::Builder::from_random_bytes(rand::rng().random()).into_uuid())
}

/// Random numbers that are the same in every run, so that failures can be reproduced.
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
