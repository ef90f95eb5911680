//! The conformance suite of the store contract.
//!
//! Every implementation runs the same cases, each on a fresh store and its own runtime. After each
//! case the invariants are checked for every task in the store. The suite knows no database, and it
//! never sleeps: time passes when a case moves the clock.

mod case;
mod invariants;
mod support;

mod lifecycle;
mod recipes;

mod submitting;

mod artifacts;
mod claims;
mod finishing;
mod host_affinity;
mod logs;
mod named;
mod nodes;
mod parents;
mod strays;

mod admin;
mod bulk;

mod expiry;
mod maintenance;
mod outbox;
mod retention;
mod waiting;

mod lists;
mod ownership;
mod task_counts;
mod tokens;

mod bad_input;
mod clocks;
mod strange_input;

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
        ("host_affinity", host_affinity::cases()),
        ("strays", strays::cases()),
        ("logs", logs::cases()),
        ("artifacts", artifacts::cases()),
        ("finishing", finishing::cases()),
        ("parents", parents::cases()),
        ("admin", admin::cases()),
        ("bulk", bulk::cases()),
        ("maintenance", maintenance::cases()),
        ("expiry", expiry::cases()),
        ("retention", retention::cases()),
        ("outbox", outbox::cases()),
        ("lists", lists::cases()),
        ("ownership", ownership::cases()),
        ("task_counts", task_counts::cases()),
        ("tokens", tokens::cases()),
        ("bad_input", bad_input::cases()),
        ("strange_input", strange_input::cases()),
        ("clock", clocks::cases()),
        ("races", races::cases()),
        ("races", races_of_ends::cases()),
        ("model", model::cases()),
    ]
}
