//! The conformance suite of the doorbell contract.

use futures::poll;
use libtest_mimic::Trial;
use longhaul_domain::contract::Doorbell;

use crate::suite::{self, Case, Factory, cases, within_patience};

/// Makes a doorbell that nobody has rung.
pub type DoorbellFactory = Factory<(), dyn Doorbell>;

/// One trial for each case, named `{backend}::doorbell::{sentence}`.
pub fn trials(backend: &str, factory: &DoorbellFactory) -> Vec<Trial> {
    suite::trials(backend, "doorbell", factory, cases())
}

fn cases() -> Vec<Case<DoorbellFactory>> {
    cases![
        a_ring_that_nobody_waits_for_is_kept,
        a_ring_wakes_who_waits,
        each_ring_after_one_that_was_heard_is_heard_again,
        many_rings_hold_up_nobody,
        who_gives_up_waiting_does_not_take_the_ring_along,
    ]
}

async fn a_ring_that_nobody_waits_for_is_kept(make: DoorbellFactory) {
    let bell = make(()).await;
    bell.ring("default");
    within_patience(bell.heard()).await;
}

async fn a_ring_wakes_who_waits(make: DoorbellFactory) {
    let bell = make(()).await;
    let mut heard = bell.heard();
    // It may return without a ring; if it does not, the ring must end it.
    if poll!(&mut heard).is_pending() {
        bell.ring("default");
        within_patience(heard).await;
    }
}

async fn each_ring_after_one_that_was_heard_is_heard_again(make: DoorbellFactory) {
    let bell = make(()).await;
    for queue in ["default", "other", "default"].repeat(20) {
        bell.ring(queue);
        within_patience(bell.heard()).await;
    }
}

async fn many_rings_hold_up_nobody(make: DoorbellFactory) {
    let bell = make(()).await;
    (0..100_000).for_each(|_| bell.ring("default"));
    within_patience(bell.heard()).await;
}

async fn who_gives_up_waiting_does_not_take_the_ring_along(make: DoorbellFactory) {
    let bell = make(()).await;
    for _ in 0..100 {
        let mut gives_up = bell.heard();
        let _ = poll!(&mut gives_up);
        bell.ring("default");
        drop(gives_up);
        within_patience(bell.heard()).await;
    }
}
