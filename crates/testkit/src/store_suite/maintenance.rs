//! Maintenance: one node at a time runs a job, and every pass is bounded.

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
        the_first_node_that_asks_gets_the_lease,
        the_holder_can_renew_its_lease,
        another_node_gets_the_lease_after_it_expired,
        leases_of_different_jobs_are_independent,
        a_lease_needs_a_valid_job_and_duration,
        maintenance_passes_are_bounded,
    ]
}

async fn the_first_node_that_asks_gets_the_lease(fixture: Arc<Fixture>) {
    let first = random_node_id();
    let second = random_node_id();
    let lease = fixture
        .store
        .take_maintenance_lease("relay", first, HOUR_MS)
        .await
        .unwrap()
        .expect("the job has no holder");

    assert_eq!(
        (lease.job.as_str(), lease.node_id, lease.epoch),
        ("relay", first, 1)
    );
    let now = fixture.store.now().await.unwrap();
    assert!(lease.leased_until > now && lease.leased_until <= now.plus_ms(HOUR_MS));

    assert_eq!(
        fixture
            .store
            .take_maintenance_lease("relay", second, HOUR_MS)
            .await
            .unwrap(),
        None
    );
}

async fn the_holder_can_renew_its_lease(fixture: Arc<Fixture>) {
    let first = random_node_id();
    let second = random_node_id();
    let mut until = fixture
        .store
        .take_maintenance_lease("relay", first, HOUR_MS)
        .await
        .unwrap()
        .unwrap()
        .leased_until;

    for _ in 0..4 {
        fixture.clock.advance_ms(HOUR_MS / 2);
        let lease = fixture
            .store
            .take_maintenance_lease("relay", first, HOUR_MS)
            .await
            .unwrap()
            .expect("the node holds the job");
        assert!(lease.leased_until > until && lease.epoch == 1);
        until = lease.leased_until;

        assert_eq!(
            fixture
                .store
                .take_maintenance_lease("relay", second, HOUR_MS)
                .await
                .unwrap(),
            None
        );
    }

    fixture.clock.advance_ms(2 * HOUR_MS);
    let late = fixture
        .store
        .take_maintenance_lease("relay", first, HOUR_MS)
        .await
        .unwrap()
        .expect("the job has no other holder");

    assert_eq!(late.epoch, 1);
}

async fn another_node_gets_the_lease_after_it_expired(fixture: Arc<Fixture>) {
    let first = random_node_id();
    let second = random_node_id();
    fixture
        .store
        .take_maintenance_lease("relay", first, HOUR_MS)
        .await
        .unwrap();
    fixture.clock.advance_ms(HOUR_MS);
    let lease = fixture
        .store
        .take_maintenance_lease("relay", second, HOUR_MS)
        .await
        .unwrap()
        .expect("the lease has expired");

    assert_eq!((lease.node_id, lease.epoch), (second, 2));
    assert_eq!(
        fixture
            .store
            .take_maintenance_lease("relay", first, HOUR_MS)
            .await
            .unwrap(),
        None
    );
}

async fn leases_of_different_jobs_are_independent(fixture: Arc<Fixture>) {
    let first = random_node_id();
    let second = random_node_id();
    assert!(
        fixture
            .store
            .take_maintenance_lease("relay", first, HOUR_MS)
            .await
            .unwrap()
            .is_some()
    );

    assert!(
        fixture
            .store
            .take_maintenance_lease("pruner", second, HOUR_MS)
            .await
            .unwrap()
            .is_some()
    );

    assert!(
        fixture
            .store
            .take_maintenance_lease("Relay", second, HOUR_MS)
            .await
            .unwrap()
            .is_some(),
        "job names are compared exactly"
    );
}

async fn a_lease_needs_a_valid_job_and_duration(fixture: Arc<Fixture>) {
    let node = random_node_id();
    for name in ["", "re lay", "'; DROP TABLE maintenance_leases; --", "é"] {
        assert_eq!(
            refused_field(
                fixture
                    .store
                    .take_maintenance_lease(name, node, HOUR_MS)
                    .await
            ),
            "job"
        );
    }

    let answer = fixture
        .store
        .take_maintenance_lease("relay", node, u64::MAX)
        .await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
}

async fn maintenance_passes_are_bounded(fixture: Arc<Fixture>) {
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
        host_affinity_ms: 0,
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
        fixture.store.compact_counts(too_many).await.map(|_| ()),
    ];

    for (index, answer) in refusals.into_iter().enumerate() {
        assert!(
            matches!(answer, Err(StoreError::Invalid(_))),
            "refusal {index}: {answer:?}"
        );
    }
}
