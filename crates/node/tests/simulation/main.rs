//! A simulation of the engine: real nodes and real maintenance over the reference store. A seed
//! decides every crash, pause, lost request, lost answer, lost hint and clock jump. See
//! `docs/simulation.md`.
//!
//! `LONGHAUL_SIM_SEEDS=n` runs n seeds. `LONGHAUL_SIM_SEED=s` runs one seed and prints its trace.

#![expect(
    clippy::panic,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test: a violation stops it, and the trace of a seed goes to its output"
)]

mod admin;
mod bugs;
mod checks;
mod coverage;
mod dice;
mod history;
mod node;
mod outside;
mod script;
mod store;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use bugs::PlantedBug;
use coverage::{Coverage, Situation};
use history::Violation;

/// Seeds of an ordinary run.
const SEEDS: u64 = 20_000;
/// Seeds within which a planted bug must be caught.
const SEEDS_TO_CATCH: u64 = 2_000;

#[test]
fn no_seed_violates_an_invariant() {
    if let Some(seed) = number_of("LONGHAUL_SIM_SEED") {
        return print_trace_of(seed);
    }

    let seeds = number_of("LONGHAUL_SIM_SEEDS").unwrap_or(SEEDS);
    let coverage = run_all(seeds);
    eprintln!("{seeds} seeds: {coverage}");
    if seeds >= SEEDS {
        assert_eq!(
            coverage.unseen(),
            0,
            "a situation that never occurred was not tested: {coverage}"
        );
    }
}

#[test]
fn a_seed_repeats_its_trace_and_differs_from_the_next() {
    let trace = |seed| world::run(seed, None, true).trace;
    for seed in 0..50 {
        assert!(
            trace(seed) == trace(seed),
            "seed {seed} gave two different traces"
        );
        assert!(
            trace(seed) != trace(seed + 1),
            "seeds {seed} and {} gave the same trace",
            seed + 1
        );
    }

    assert!(
        trace(7).lines().count() > 50,
        "a trace has one line per step: {}",
        trace(7)
    );
}

#[test]
fn every_planted_bug_is_caught() {
    let mut missed = Vec::new();
    for bug in PlantedBug::ALL {
        let caught =
            (0..SEEDS_TO_CATCH).find_map(|seed| Some((seed, violation_of(seed, Some(bug))?)));
        match caught {
            Some((seed, violation)) => {
                eprintln!("{bug:?}: {} seeds, {}", seed + 1, violation.invariant)
            }
            None => missed.push(bug),
        }
    }

    assert!(
        missed.is_empty(),
        "not caught within {SEEDS_TO_CATCH} seeds: {missed:?}"
    );
}

/// Runs the seeds on all cores and adds up their coverage. The first violation stops all threads.
fn run_all(seeds: u64) -> Coverage {
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let next = AtomicU64::new(0);
    let total = Mutex::new(Coverage::default());
    let failed: Mutex<Option<(u64, Violation)>> = Mutex::new(None);

    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Each thread counts alone and locks the total once, at its end.
                let mut coverage = Coverage::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }

                    match run_seed(seed, None) {
                        Ok(result) => coverage.add(&result.coverage),
                        Err(violation) => {
                            // The other threads find no seed left and stop.
                            next.store(seeds, Ordering::Relaxed);
                            failed
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .get_or_insert((seed, violation));
                        }
                    }
                }

                total
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .add(&coverage);
            });
        }
    });

    if let Some((seed, violation)) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        panic!("{}", describe(seed, &violation));
    }

    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one seed. A panic counts as a violation too.
fn run_seed(seed: u64, bug: Option<PlantedBug>) -> Result<world::SeedResult, Violation> {
    match catch_unwind(AssertUnwindSafe(|| world::run(seed, bug, false))) {
        Ok(world::SeedResult {
            violation: Some(violation),
            ..
        }) => Err(violation),
        Ok(result) => Ok(result),
        Err(_) => Err(Violation {
            step: 0,
            invariant: "nothing panics",
            detail: "see the panic above".to_owned(),
        }),
    }
}

fn violation_of(seed: u64, bug: Option<PlantedBug>) -> Option<Violation> {
    run_seed(seed, bug).err()
}

fn describe(seed: u64, violation: &Violation) -> String {
    format!(
        "seed {seed}, step {}: \"{}\" is violated: {}\nrepeat it with: LONGHAUL_SIM_SEED={seed} cargo test \
         -p longhaul-node --test simulation no_seed -- --nocapture",
        violation.step, violation.invariant, violation.detail
    )
}

fn print_trace_of(seed: u64) {
    let result = world::run(seed, None, true);
    eprintln!(
        "{}\n{} steps, {} claims",
        result.trace,
        result.steps,
        result.coverage.count(Situation::Claim)
    );

    if let Some(violation) = &result.violation {
        panic!("{}", describe(seed, violation));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only function of this test that reads the environment"
)]
fn number_of(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .expect("LONGHAUL_SIM_SEED and LONGHAUL_SIM_SEEDS are whole numbers"),
    )
}
