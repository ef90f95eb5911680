//! Duties: one node at a time does each, and what a pass takes is bounded.

use std::sync::Arc;

use longhaul_domain::{
    StoreError, TaskId, bounds, contract::store::RescueRequest, filter::Retention,
    lifecycle::expire::Overdue,
};

use super::{
    case::{Case, cases},
    support::{HOUR_MS, random_node_id, random_uuid, refused_field},
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_duty_is_held_by_the_first_who_asks,
        the_holder_renews_its_duty,
        a_duty_changes_hands_when_its_lease_has_run_out,
        duties_do_not_get_in_each_others_way,
        a_duty_needs_a_name_and_a_time_within_reason,
        the_passes_of_duties_are_bounded,
    ]
}

async fn a_duty_is_held_by_the_first_who_asks(fixture: Arc<Fixture>) {
    let (first, second) = (random_node_id(), random_node_id());
    let lease = fixture
        .store
        .take_duty("relay", first, HOUR_MS)
        .await
        .unwrap()
        .expect("nobody holds it");
    assert_eq!(
        (lease.duty.as_str(), lease.node_id, lease.epoch),
        ("relay", first, 1)
    );
    let now = fixture.store.now().await.unwrap();
    assert!(lease.leased_until > now && lease.leased_until <= now.plus_ms(HOUR_MS));
    assert_eq!(
        fixture
            .store
            .take_duty("relay", second, HOUR_MS)
            .await
            .unwrap(),
        None
    );
}

async fn the_holder_renews_its_duty(fixture: Arc<Fixture>) {
    let (first, second) = (random_node_id(), random_node_id());
    let mut until = fixture
        .store
        .take_duty("relay", first, HOUR_MS)
        .await
        .unwrap()
        .unwrap()
        .leased_until;
    for _ in 0..4 {
        fixture.clock.advance_ms(HOUR_MS / 2);
        let lease = fixture
            .store
            .take_duty("relay", first, HOUR_MS)
            .await
            .unwrap()
            .expect("it holds the duty");
        assert!(lease.leased_until > until && lease.epoch == 1);
        until = lease.leased_until;
        assert_eq!(
            fixture
                .store
                .take_duty("relay", second, HOUR_MS)
                .await
                .unwrap(),
            None
        );
    }
    fixture.clock.advance_ms(2 * HOUR_MS);
    let late = fixture
        .store
        .take_duty("relay", first, HOUR_MS)
        .await
        .unwrap()
        .expect("nobody took it meanwhile");
    assert_eq!(late.epoch, 1);
}

async fn a_duty_changes_hands_when_its_lease_has_run_out(fixture: Arc<Fixture>) {
    let (first, second) = (random_node_id(), random_node_id());
    fixture
        .store
        .take_duty("relay", first, HOUR_MS)
        .await
        .unwrap();
    fixture.clock.advance_ms(HOUR_MS);
    let lease = fixture
        .store
        .take_duty("relay", second, HOUR_MS)
        .await
        .unwrap()
        .expect("the lease has run out");
    assert_eq!((lease.node_id, lease.epoch), (second, 2));
    assert_eq!(
        fixture
            .store
            .take_duty("relay", first, HOUR_MS)
            .await
            .unwrap(),
        None
    );
}

async fn duties_do_not_get_in_each_others_way(fixture: Arc<Fixture>) {
    let (first, second) = (random_node_id(), random_node_id());
    assert!(
        fixture
            .store
            .take_duty("relay", first, HOUR_MS)
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        fixture
            .store
            .take_duty("pruner", second, HOUR_MS)
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        fixture
            .store
            .take_duty("Relay", second, HOUR_MS)
            .await
            .unwrap()
            .is_some(),
        "names are exact"
    );
}

async fn a_duty_needs_a_name_and_a_time_within_reason(fixture: Arc<Fixture>) {
    let node = random_node_id();
    for name in ["", "re lay", "'; DROP TABLE duties; --", "é"] {
        assert_eq!(
            refused_field(fixture.store.take_duty(name, node, HOUR_MS).await),
            "duty"
        );
    }
    let answer = fixture.store.take_duty("relay", node, u64::MAX).await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
}

async fn the_passes_of_duties_are_bounded(fixture: Arc<Fixture>) {
    let too_many = bounds::MAINTENANCE_BATCH + 1;
    let keep = Retention {
        ended_ms: 0,
        dead_letter_ms: 0,
    };
    let overdue = Overdue {
        silent_ms: HOUR_MS,
        timeout_grace_ms: HOUR_MS,
    };
    let request = RescueRequest {
        asker: None,
        lease_ms: HOUR_MS,
        max_crashes: 5,
        limit: too_many,
        keep_for_host_ms: 0,
    };
    let ids = vec![TaskId(random_uuid()); too_many];
    let refusals = [
        fixture.store.rescue_tasks(&request).await.map(|_| ()),
        fixture
            .store
            .expire_tasks(&overdue, too_many)
            .await
            .map(|_| ()),
        fixture
            .store
            .list_prunable(&keep, None, too_many)
            .await
            .map(|_| ()),
        fixture.store.prune_tasks(&keep, &ids).await.map(|_| ()),
        fixture
            .store
            .prune_idempotency_keys(too_many)
            .await
            .map(|_| ()),
        fixture.store.prune_tokens(too_many).await.map(|_| ()),
        fixture
            .store
            .lease_outbox(too_many, HOUR_MS)
            .await
            .map(|_| ()),
        fixture.store.fold_tallies(too_many).await.map(|_| ()),
    ];
    for (index, answer) in refusals.into_iter().enumerate() {
        assert!(
            matches!(answer, Err(StoreError::Invalid(_))),
            "refusal {index}: {answer:?}"
        );
    }
}
