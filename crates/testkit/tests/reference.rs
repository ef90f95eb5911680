//! Runs the store suite on the in-memory reference store.

use std::sync::Arc;

use libtest_mimic::Arguments;
use longhaul_domain::event::OutboxPolicy;
use longhaul_testkit::{
    clock::TestClock,
    fixture::{Fixture, FixtureFactory},
    reference::MemoryStore,
    store_suite,
};

fn main() {
    let factory: FixtureFactory = Arc::new(|outbox| Box::pin(async move { fresh_store(outbox) }));
    libtest_mimic::run(
        &Arguments::from_args(),
        store_suite::trials("memory", factory),
    )
    .exit();
}

fn fresh_store(outbox: OutboxPolicy) -> Fixture {
    let clock = TestClock::new();
    Fixture::new(
        Arc::new(MemoryStore::new(clock.clone(), outbox)),
        clock,
        None,
    )
}
