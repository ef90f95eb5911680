//! Random histories: each runs on the store under test and on the reference store. All answers and
//! the final contents must be equal. A history with a difference is shrunk and printed with the
//! seed that reproduces it.

mod operation;
mod perform;
mod side;
mod snapshot;

use std::sync::Arc;

use longhaul_domain::event::OutboxPolicy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use rand::RngExt;
use tokio::runtime::Runtime;

use super::{case::Case, invariants};
use crate::{
    clock::TestClock,
    fixture::{Fixture, FixtureFactory},
    reference::MemoryStore,
};
use operation::Operation;
use side::Side;

/// The histories of one run, and their greatest length.
const HISTORIES: u64 = 24;
const STEPS: usize = 60;
/// The most histories tried while shrinking. Each needs a fresh store.
const SHRINKS: u32 = 500;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::on_many_stores(
        "random_histories_agree_with_the_reference_store",
        random_histories_agree_with_the_reference_store,
    )]
}

fn random_histories_agree_with_the_reference_store(runtime: &Runtime, factory: &FixtureFactory) {
    let seed = number_from_environment("LONGHAUL_SEED").unwrap_or_else(|| rand::rng().random());
    let histories = number_from_environment("LONGHAUL_HISTORIES").unwrap_or(HISTORIES);
    let config = Config {
        cases: u32::try_from(histories).unwrap_or(u32::MAX),
        failure_persistence: None,
        max_shrink_iters: SHRINKS,
        ..Config::default()
    };

    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let outcome =
        TestRunner::new_with_rng(config, random).run(&operation::histories(STEPS), |history| {
            runtime
                .block_on(compare(&history, factory))
                .map_err(TestCaseError::fail)
        });

    match outcome {
        Ok(()) => {}
        Err(TestError::Abort(reason)) => panic!("no history was drawn: {reason}"),
        Err(TestError::Fail(reason, history)) => {
            let steps: Vec<String> = history.iter().map(|step| format!("  {step:?}")).collect();
            let steps = steps.join("\n");
            panic!(
                "LONGHAUL_SEED={seed} draws a history with a difference: {reason}
\
                 the shortest history:\n{steps}"
            )
        }
    }
}

/// Runs a history on both stores. Returns the first difference.
async fn compare(history: &[Operation], factory: &FixtureFactory) -> Result<(), String> {
    let clock = TestClock::new();
    let reference = Fixture::new(
        Arc::new(MemoryStore::new(clock.clone(), OutboxPolicy::everything())),
        clock,
        None,
    );
    let mut expected = Side::new(reference).await;
    let mut tested = Side::new(factory(OutboxPolicy::everything()).await).await;

    for (index, step) in history.iter().enumerate() {
        let wanted = expected.perform(step).await;
        let found = tested.perform(step).await;
        if wanted != found {
            return Err(format!(
                "step {index}, {step:?}\n expected: {wanted}\n found:    {found}\n"
            ));
        }
    }

    invariants::check(&tested.fixture).await;
    let wanted = expected.snapshot().await;
    let found = tested.snapshot().await;
    let differs = wanted
        .iter()
        .zip(&found)
        .find(|(wanted, found)| wanted != found);
    match differs {
        Some((wanted, found)) => Err(format!(
            "the final contents differ\n expected: {wanted}\n found:    {found}\n"
        )),
        None if wanted.len() != found.len() => {
            Err(format!("expected {wanted:#?}\n found {found:#?}\n"))
        }
        None => Ok(()),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place of the testkit that reads the environment"
)]
fn number_from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is {text:?}; allowed: a whole number")),
    )
}
