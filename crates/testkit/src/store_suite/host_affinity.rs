//! Host affinity: for a while after a rescue, only nodes of the task's last host may claim it.

use std::sync::Arc;

use longhaul_domain::{
    NewTask, NodeId, Status, StoreError, TaskId, TaskRecord,
    contract::store::{Access, ClaimRequest, RescueRequest},
    lifecycle::reschedule::Reschedule,
};

use super::{
    case::{Case, cases},
    support::{
        HOUR_MS, KIND, MANY, QUEUE, claim_request, ids_of, json, lease_of, new_task,
        random_node_id, random_uuid,
    },
};
use crate::{fixture::Fixture, names::queue_name};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_rescued_task_is_reserved_for_its_host_for_a_while,
        without_host_affinity_any_node_claims_a_rescued_task,
        a_change_or_an_end_removes_the_host_affinity,
        reserved_tasks_are_claimed_in_order_by_queue_type_and_limit,
        a_quarantined_task_has_no_host_affinity,
        a_lost_node_cannot_claim_reserved_tasks,
    ]
}

const OTHER_HOST: &str = "host-2";
const AFFINITY_MS: u64 = HOUR_MS;

fn on(host: &str, request: ClaimRequest) -> ClaimRequest {
    ClaimRequest {
        host: host.to_owned(),
        ..request
    }
}

impl Fixture {
    async fn node_on(&self, host: &str) -> NodeId {
        let id = NodeId(random_uuid());
        self.store
            .register_node(id, "node", host, None)
            .await
            .expect("the node is valid");
        id
    }

    async fn rescue_with_affinity(&self, max_crashes: u32) -> Vec<TaskId> {
        let request = RescueRequest {
            asker: None,
            lease_ms: HOUR_MS,
            max_crashes,
            limit: MANY,
            host_affinity_ms: AFFINITY_MS,
        };

        self.store
            .rescue_tasks(&request)
            .await
            .expect("the request is valid")
            .requeued
    }

    async fn claim_host_affinity(&self, node: NodeId, host: &str) -> Vec<TaskRecord> {
        let request = on(host, claim_request(node, &[QUEUE], &[KIND], MANY));
        self.store
            .claim_host_affinity(&request)
            .await
            .expect("the node may claim")
    }

    /// Tasks that ran on `host-1` and whose node is dead.
    async fn orphans(&self, tasks: Vec<NewTask>) -> Vec<TaskId> {
        let ids = self.submit_all(tasks).await;
        let node = self.node().await;
        let kinds: Vec<&str> = vec![KIND, "other"];
        assert_eq!(
            self.claim_from(node, &[QUEUE, "second"], &kinds, MANY)
                .await
                .len(),
            ids.len()
        );

        self.clock.advance_ms(2 * HOUR_MS);
        ids
    }
}

async fn a_rescued_task_is_reserved_for_its_host_for_a_while(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(), new_task()]).await;
    let dead = fixture.node().await;
    let lease = fixture.claim_this(dead, ids[0]).await;
    fixture.claim_this(dead, ids[1]).await;
    fixture
        .store
        .save_checkpoint(&lease, &json("{\"at\":7}"))
        .await
        .unwrap();

    fixture.clock.advance_ms(2 * HOUR_MS);
    assert_eq!(fixture.rescue_with_affinity(5).await, ids);
    let here = fixture.node_on("host-1").await;
    let there = fixture.node_on(OTHER_HOST).await;
    assert!(fixture.claim(there, MANY).await.is_empty(), "reserved");
    assert!(
        fixture
            .claim_host_affinity(there, OTHER_HOST)
            .await
            .is_empty(),
        "reserved for another host"
    );

    assert!(
        fixture
            .store
            .list_due(&queue_name(QUEUE), MANY)
            .await
            .unwrap()
            .is_empty(),
        "no hint is published for it"
    );

    let request = claim_request(here, &[QUEUE], &[KIND], 1);
    let claimed = fixture.store.claim_host_affinity(&request).await.unwrap();
    assert_eq!(ids_of(&claimed), ids[..1]);
    assert_eq!(
        claimed[0],
        fixture.task(ids[0]).await,
        "the answer is the row"
    );
    assert_eq!((claimed[0].attempt, claimed[0].crash_count), (2, 1));

    assert_eq!(claimed[0].checkpoint, Some(json("{\"at\":7}")));
    assert!(claimed[0].due_at <= claimed[0].last_attempt_at.unwrap());

    fixture.clock.advance_ms(AFFINITY_MS);
    assert_eq!(
        ids_of(&fixture.claim(there, MANY).await),
        ids[1..],
        "the reservation is over"
    );
    assert!(fixture.claim_host_affinity(here, "host-1").await.is_empty());
}

async fn without_host_affinity_any_node_claims_a_rescued_task(fixture: Arc<Fixture>) {
    let ids = fixture.orphans(vec![new_task()]).await;
    assert_eq!(fixture.rescue(5).await.requeued, ids);
    let here = fixture.node_on("host-1").await;
    let there = fixture.node_on(OTHER_HOST).await;
    assert!(fixture.claim_host_affinity(here, "host-1").await.is_empty());
    assert_eq!(ids_of(&fixture.claim(there, MANY).await), ids);
}

async fn a_change_or_an_end_removes_the_host_affinity(fixture: Arc<Fixture>) {
    let ids = fixture.orphans(vec![new_task(); 4]).await;
    assert_eq!(fixture.rescue_with_affinity(5).await, ids);
    fixture
        .store
        .cancel_task(&Access::All, ids[0])
        .await
        .unwrap();
    let now = fixture.store.now().await.unwrap();

    for (id, run_at) in [(ids[1], now), (ids[3], now.plus_ms(3 * HOUR_MS))] {
        let change = Reschedule {
            run_at: Some(run_at),
            ..Reschedule::default()
        };
        fixture
            .store
            .reschedule_task(&Access::All, id, &change)
            .await
            .unwrap();
    }

    let here = fixture.node_on("host-1").await;
    let there = fixture.node_on(OTHER_HOST).await;
    assert_eq!(
        ids_of(&fixture.claim(there, MANY).await),
        [ids[1]],
        "a reschedule removed the reservation"
    );
    assert_eq!(
        ids_of(&fixture.claim_host_affinity(here, "host-1").await),
        [ids[2]],
        "the other reservations are gone"
    );

    assert_eq!(fixture.status(ids[0]).await, Status::Cancelled);
}

async fn reserved_tasks_are_claimed_in_order_by_queue_type_and_limit(fixture: Arc<Fixture>) {
    let second = NewTask {
        queue: queue_name("second"),
        ..new_task()
    };
    let other = NewTask {
        task_type: "other".into(),
        ..new_task()
    };
    let urgent = NewTask {
        priority: 9,
        ..new_task()
    };

    let ids = fixture
        .orphans(vec![second, other, new_task(), urgent])
        .await;
    assert_eq!(fixture.rescue_with_affinity(5).await.len(), 4);
    let here = fixture.node_on("host-1").await;

    fixture.store.pause_queue(&queue_name(QUEUE)).await.unwrap();
    assert!(
        fixture.claim_host_affinity(here, "host-1").await.is_empty(),
        "a paused queue is not claimed"
    );
    fixture
        .store
        .resume_queue(&queue_name(QUEUE))
        .await
        .unwrap();
    let request = claim_request(here, &[QUEUE], &[KIND], 1);

    assert_eq!(
        ids_of(&fixture.store.claim_host_affinity(&request).await.unwrap()),
        [ids[3]]
    );
    assert_eq!(
        ids_of(&fixture.store.claim_host_affinity(&request).await.unwrap()),
        [ids[2]]
    );

    assert!(
        fixture
            .store
            .claim_host_affinity(&request)
            .await
            .unwrap()
            .is_empty()
    );

    let all = claim_request(here, &[QUEUE, "second"], &[KIND, "other"], MANY);
    assert_eq!(
        ids_of(&fixture.store.claim_host_affinity(&all).await.unwrap()).len(),
        2
    );
}

async fn a_quarantined_task_has_no_host_affinity(fixture: Arc<Fixture>) {
    let ids = fixture.orphans(vec![new_task()]).await;
    assert!(fixture.rescue_with_affinity(1).await.is_empty());
    assert_eq!(fixture.status(ids[0]).await, Status::DeadLetter);
    let here = fixture.node_on("host-1").await;
    assert!(fixture.claim_host_affinity(here, "host-1").await.is_empty());
}

async fn a_lost_node_cannot_claim_reserved_tasks(fixture: Arc<Fixture>) {
    let ids = fixture.orphans(vec![new_task()]).await;
    assert_eq!(fixture.rescue_with_affinity(5).await, ids);
    let answer = fixture
        .store
        .claim_host_affinity(&claim_request(random_node_id(), &[QUEUE], &[KIND], MANY))
        .await;
    assert!(matches!(answer, Err(StoreError::NodeLost)), "{answer:?}");
    let here = fixture.node_on("host-1").await;
    let claimed = fixture.claim_host_affinity(here, "host-1").await;

    assert_eq!(lease_of(&claimed[0]).attempt, 2);
}
