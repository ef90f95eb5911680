//! The one conformance suite of the store contract.
//!
//! Every implementation runs the same cases, each on a fresh store and a runtime of its own. What a case does
//! not look at is looked at after it: the invariants hold for every task that it left behind. Nothing here
//! knows a database, and nothing here waits by sleeping: time passes when a case moves the clock.

mod case;
mod invariants;
mod support;

mod lifecycle;
mod recipes;

mod submitting;

mod artifacts;
mod claims;
mod finishing;
mod kept;
mod logs;
mod named;
mod nodes;
mod parents;
mod strays;

mod bulk;
mod people;

mod duties;
mod expiry;
mod outbox;
mod retention;
mod waiting;

mod lists;
mod ownership;
mod tallies;
mod tokens;

mod bad_input;
mod clocks;

mod races;
mod races_of_ends;

mod model;

use libtest_mimic::Trial;

use crate::fixture::FixtureFactory;
use case::Case;

/// One trial for each case, named `{backend}::{group}::{sentence}`.
pub fn trials(backend: &'static str, factory: FixtureFactory) -> Vec<Trial> {
    let groups = groups().into_iter();
    let cases = groups.flat_map(|(group, cases)| cases.into_iter().map(move |case| (group, case)));
    cases
        .map(|(group, case)| case.into_trial(backend, group, factory.clone()))
        .collect()
}

fn groups() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("lifecycle", lifecycle::cases()),
        ("submitting", submitting::cases()),
        ("claims", claims::cases()),
        ("named", named::cases()),
        ("waiting", waiting::cases()),
        ("nodes", nodes::cases()),
        ("kept", kept::cases()),
        ("strays", strays::cases()),
        ("logs", logs::cases()),
        ("artifacts", artifacts::cases()),
        ("finishing", finishing::cases()),
        ("parents", parents::cases()),
        ("people", people::cases()),
        ("bulk", bulk::cases()),
        ("duties", duties::cases()),
        ("expiry", expiry::cases()),
        ("retention", retention::cases()),
        ("outbox", outbox::cases()),
        ("lists", lists::cases()),
        ("ownership", ownership::cases()),
        ("tallies", tallies::cases()),
        ("tokens", tokens::cases()),
        ("bad_input", bad_input::cases()),
        ("clock", clocks::cases()),
        ("races", races::cases()),
        ("races", races_of_ends::cases()),
        ("model", model::cases()),
    ]
}
