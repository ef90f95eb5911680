//! Strays: tasks of a claim whose answer was lost, so that their node does not know of them.

use std::sync::Arc;

use longhaul_domain::{
    AttemptEndKind, Lease, NodeId, Status, TaskId, bounds,
    contract::store::{AttemptEnd, Verdict},
    event::{EventKind, OutboxPolicy},
};

use super::{
    case::{Case, cases},
    recipes::{Recipe, build},
    support::{
        HOUR_MS, MANY, completed, forged, ids_of, lease_of, new_task, random_node_id, refused_field,
    },
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    let mut all = cases![
        a_stray_is_handed_back_without_charge,
        known_and_recent_leases_are_not_strays,
        a_lease_of_an_earlier_attempt_does_not_protect_the_task,
        tasks_of_other_nodes_are_not_strays,
        only_running_tasks_are_handed_back,
        the_old_lease_of_a_stray_is_stale,
        the_parent_of_a_stray_child_still_waits,
        known_leases_do_not_hide_strays,
        strays_are_handed_back_oldest_first_in_bounded_passes,
        an_invalid_request_is_refused_by_field,
    ];

    let with_events = |case: Case| case.with_outbox(OutboxPolicy::everything());
    all.extend(
        cases![listeners_hear_of_a_stray]
            .into_iter()
            .map(with_events),
    );

    all
}

impl Fixture {
    /// Hands back strays that were claimed at least an hour ago.
    async fn hand_back_strays(&self, node: NodeId, known: &[Lease]) -> Vec<TaskId> {
        self.store
            .hand_back_strays(node, known, HOUR_MS)
            .await
            .expect("the request is valid")
    }

    /// A node and the leases of its only claim.
    async fn claimed(&self, count: usize) -> (NodeId, Vec<Lease>) {
        self.submit_all(vec![new_task(); count]).await;
        let node = self.node().await;
        let claimed = self.claim(node, count).await;
        assert_eq!(claimed.len(), count);
        (node, claimed.iter().map(lease_of).collect())
    }
}

async fn a_stray_is_handed_back_without_charge(fixture: Arc<Fixture>) {
    let (node, leases) = fixture.claimed(1).await;
    let before = fixture.task(leases[0].task_id).await;
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.hand_back_strays(node, &[]).await, [before.id]);
    let after = fixture.task(before.id).await;

    assert_eq!(
        (after.status, after.lease_token, after.due_at),
        (Status::Queued, None, before.due_at)
    );
    let charges = (after.retry_count, after.crash_count, after.snooze_count);

    assert_eq!(
        (charges, after.error),
        ((0, 0, 0), None),
        "no attempt is charged"
    );
    let attempts = fixture.attempts(before.id).await;

    assert_eq!(
        (attempts.len(), attempts[0].end),
        (1, AttemptEndKind::HandedBack)
    );
    assert_eq!(
        fixture.hand_back_strays(node, &[]).await,
        [],
        "a second pass finds nothing"
    );

    let again = fixture.claim_this(node, before.id).await;
    assert_eq!(again.attempt, 2, "the same node may have it");
    assert_eq!(
        fixture.finish(again, completed()).await,
        Verdict::Applied(Status::Completed)
    );
}

async fn known_and_recent_leases_are_not_strays(fixture: Arc<Fixture>) {
    let (node, old) = fixture.claimed(3).await;
    fixture.clock.advance_ms(HOUR_MS / 2);
    let young = fixture.submit(new_task()).await;
    fixture.claim_this(node, young).await;
    assert_eq!(
        fixture.hand_back_strays(node, &[]).await,
        [],
        "the answer may still arrive"
    );

    fixture.clock.advance_ms(HOUR_MS / 2);
    let before = fixture.task(old[1].task_id).await;
    assert_eq!(
        fixture.hand_back_strays(node, &[old[1]]).await,
        [old[0].task_id, old[2].task_id]
    );
    assert_eq!(fixture.task(old[1].task_id).await, before);
    assert_eq!(fixture.status(young).await, Status::Running);
    assert_eq!(
        fixture.finish(old[1], completed()).await,
        Verdict::Applied(Status::Completed)
    );
}

/// The node lost the answer to its second claim of a task but knows the lease of the first.
async fn a_lease_of_an_earlier_attempt_does_not_protect_the_task(fixture: Arc<Fixture>) {
    let (node, leases) = fixture.claimed(1).await;
    fixture.finish(leases[0], AttemptEnd::HandedBack).await;
    let second = fixture.claim_this(node, leases[0].task_id).await;
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.hand_back_strays(node, &[second]).await, []);
    assert_eq!(
        fixture
            .hand_back_strays(node, &[leases[0], forged(&second)])
            .await,
        [second.task_id]
    );
}

async fn tasks_of_other_nodes_are_not_strays(fixture: Arc<Fixture>) {
    let (node, leases) = fixture.claimed(2).await;
    fixture.clock.advance_ms(HOUR_MS);
    let other = fixture.node().await;
    assert_eq!(fixture.hand_back_strays(other, &[]).await, []);
    assert_eq!(
        fixture.hand_back_strays(random_node_id(), &leases).await,
        []
    );
    assert_eq!(
        fixture.store.heartbeat_node(node, &leases).await.unwrap(),
        []
    );
}

async fn only_running_tasks_are_handed_back(fixture: Arc<Fixture>) {
    for recipe in Recipe::ALL {
        let built = build(&fixture, recipe).await;
        fixture.clock.advance_ms(HOUR_MS);
        let before = fixture.task(built.id).await;
        let strays = fixture.hand_back_strays(built.node, &[]).await;
        let after = fixture.task(built.id).await;

        if recipe == Recipe::Running {
            assert_eq!((strays, after.status), (vec![built.id], Status::Queued));
        } else {
            assert_eq!((strays, after), (vec![], before), "{recipe:?}");
        }
    }
}

async fn the_old_lease_of_a_stray_is_stale(fixture: Arc<Fixture>) {
    let (node, leases) = fixture.claimed(1).await;
    let lease = leases[0];
    fixture.clock.advance_ms(HOUR_MS);
    fixture.hand_back_strays(node, &[]).await;
    for outcome in [completed(), AttemptEnd::HandedBack] {
        assert_eq!(
            fixture.finish(lease, outcome).await,
            Verdict::Stale(Status::Queued)
        );
    }

    let gone = fixture.store.heartbeat_node(node, &[lease]).await.unwrap();
    assert_eq!(
        gone,
        [(lease, Verdict::Stale(Status::Queued))],
        "the node's next heartbeat returns it"
    );
    let successor = fixture.claim_this(node, lease.task_id).await;

    assert_eq!(
        fixture.finish(lease, completed()).await,
        Verdict::Stale(Status::Running)
    );
    assert_eq!(
        fixture.finish(successor, completed()).await,
        Verdict::Applied(Status::Completed)
    );
}

async fn the_parent_of_a_stray_child_still_waits(fixture: Arc<Fixture>) {
    let parent = fixture.start(new_task()).await;
    let child = fixture.submit_children(parent, vec![new_task()]).await[0];
    let node = fixture.node().await;
    fixture.claim_this(node, child).await;
    assert_eq!(
        fixture.finish(parent, completed()).await,
        Verdict::Applied(Status::Waiting)
    );
    fixture.clock.advance_ms(HOUR_MS);

    assert_eq!(fixture.hand_back_strays(node, &[]).await, [child]);
    assert_eq!(fixture.status(parent.task_id).await, Status::Waiting);
    fixture.run(child, completed()).await;
    assert_eq!(fixture.status(parent.task_id).await, Status::Completed);
}

async fn known_leases_do_not_hide_strays(fixture: Arc<Fixture>) {
    let (node, known) = fixture.claimed(bounds::CLAIM_BATCH).await;
    let strays = fixture.submit_all(vec![new_task(); 3]).await;
    assert_eq!(ids_of(&fixture.claim(node, MANY).await), strays);
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.hand_back_strays(node, &known).await, strays);
    assert_eq!(
        fixture.store.heartbeat_node(node, &known).await.unwrap(),
        []
    );
}

async fn strays_are_handed_back_oldest_first_in_bounded_passes(fixture: Arc<Fixture>) {
    let ids = fixture
        .submit_all(vec![new_task(); bounds::MAINTENANCE_BATCH + 2])
        .await;
    let node = fixture.node().await;
    for expected in [MANY, 2] {
        assert_eq!(fixture.claim(node, MANY).await.len(), expected);
    }

    fixture.clock.advance_ms(HOUR_MS);
    let (first, rest) = ids.split_at(bounds::MAINTENANCE_BATCH);
    assert_eq!(fixture.hand_back_strays(node, &[]).await, first);
    assert_eq!(fixture.hand_back_strays(node, &[]).await, rest);
    assert_eq!(fixture.hand_back_strays(node, &[]).await, []);
}

async fn an_invalid_request_is_refused_by_field(fixture: Arc<Fixture>) {
    let (node, leases) = fixture.claimed(1).await;
    fixture.clock.advance_ms(HOUR_MS);
    let too_many = vec![leases[0]; bounds::HELD + 1];
    assert_eq!(
        refused_field(fixture.store.hand_back_strays(node, &too_many, 0).await),
        "known"
    );
    let too_long = fixture
        .store
        .hand_back_strays(node, &[], bounds::DURATION_MS + 1)
        .await;

    assert_eq!(refused_field(too_long), "olderThan");
    assert_eq!(fixture.status(leases[0].task_id).await, Status::Running);
}

async fn listeners_hear_of_a_stray(fixture: Arc<Fixture>) {
    let (node, leases) = fixture.claimed(1).await;
    fixture.drain_outbox().await;
    fixture.clock.advance_ms(HOUR_MS);
    fixture.hand_back_strays(node, &[]).await;
    let messages = fixture.drain_outbox().await;

    assert_eq!(messages.len(), 1);
    assert!(
        messages
            .iter()
            .all(|leased| leased.message.task_id == leases[0].task_id)
    );
    assert!(
        messages
            .iter()
            .all(|leased| leased.message.body.event == EventKind::Requeued)
    );
}
