//! The engine in a simulated world: real desks and real duties over the reference store, with crashes, pauses, lost
//! requests, lost answers, lost bells and jumps of the clock, all decided by a seed. See `docs/simulation.md`.
//!
//! `LONGHAUL_SIM_SEEDS=n` runs n seeds, `LONGHAUL_SIM_SEED=s` runs one and prints what happened.

#![expect(
    clippy::panic,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test: what is not as it must be stops it, and a seed's story is for the reader of its output"
)]

mod bugs;
mod census;
mod checks;
mod dice;
mod history;
mod node;
mod outside;
mod people;
mod script;
mod store;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use bugs::PlantedBug;
use census::{Census, Sight};
use history::Violation;

/// Seeds of an ordinary run.
const SEEDS: u64 = 20_000;
/// Seeds within which a planted bug must be caught.
const SEEDS_TO_CATCH: u64 = 2_000;

#[test]
fn no_seed_breaks_a_promise() {
    if let Some(seed) = number_of("LONGHAUL_SIM_SEED") {
        return tell_the_story_of(seed);
    }
    let seeds = number_of("LONGHAUL_SIM_SEEDS").unwrap_or(SEEDS);
    let census = run_all(seeds);
    eprintln!("{seeds} seeds: {census}");
    if seeds >= SEEDS {
        assert_eq!(
            census.unseen(),
            0,
            "a run in which something never happens proves nothing of it: {census}"
        );
    }
}

#[test]
fn the_same_seed_tells_the_same_story_and_another_seed_another() {
    let story = |seed| world::run(seed, None, true).trace;
    for seed in 0..50 {
        assert!(
            story(seed) == story(seed),
            "seed {seed} does not repeat itself"
        );
        assert!(
            story(seed) != story(seed + 1),
            "seeds {seed} and {} tell the same story",
            seed + 1
        );
    }
    assert!(
        story(7).lines().count() > 50,
        "a story has steps: {}",
        story(7)
    );
}

#[test]
fn every_planted_bug_is_caught() {
    let mut missed = Vec::new();
    for bug in PlantedBug::ALL {
        let caught = (0..SEEDS_TO_CATCH).find_map(|seed| Some((seed, broken_by(seed, Some(bug))?)));
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

/// Runs the seeds on all cores and adds up what they saw. The first broken promise stops all.
fn run_all(seeds: u64) -> Census {
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let next = AtomicU64::new(0);
    let total = Mutex::new(Census::default());
    let failed: Mutex<Option<(u64, Violation)>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut census = Census::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    match tried(seed, None) {
                        Ok(ending) => census.add(&ending.census),
                        Err(violation) => {
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
                    .add(&census);
            });
        }
    });
    if let Some((seed, violation)) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        panic!("{}", told(seed, &violation));
    }
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// One seed; what breaks inside of it is a broken promise too.
fn tried(seed: u64, bug: Option<PlantedBug>) -> Result<world::Ending, Violation> {
    match catch_unwind(AssertUnwindSafe(|| world::run(seed, bug, false))) {
        Ok(world::Ending {
            violation: Some(violation),
            ..
        }) => Err(violation),
        Ok(ending) => Ok(ending),
        Err(_) => Err(Violation {
            step: 0,
            invariant: "nothing panics",
            detail: "see above".to_owned(),
        }),
    }
}

fn broken_by(seed: u64, bug: Option<PlantedBug>) -> Option<Violation> {
    tried(seed, bug).err()
}

fn told(seed: u64, violation: &Violation) -> String {
    format!(
        "seed {seed}, step {}: \"{}\" does not hold: {}\nrepeat it with: LONGHAUL_SIM_SEED={seed} cargo test \
         -p longhaul-engine --test simulation no_seed -- --nocapture",
        violation.step, violation.invariant, violation.detail
    )
}

fn tell_the_story_of(seed: u64) {
    let ending = world::run(seed, None, true);
    eprintln!(
        "{}\n{} steps, {} claims",
        ending.trace,
        ending.steps,
        ending.census.count(Sight::Claim)
    );
    if let Some(violation) = &ending.violation {
        panic!("{}", told(seed, violation));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place of this test that reads the environment"
)]
fn number_of(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .expect("a seed or a number of seeds is a whole number"),
    )
}
