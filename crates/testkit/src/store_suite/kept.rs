//! Kept tasks: for a while after a rescue, only nodes of the host that a task ran on may claim it (R23).

use std::sync::Arc;

use longhaul_domain::{
    NewTask, NodeId, Status, StoreError, Task, TaskId,
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
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_kept_task_goes_to_its_host_at_once_and_to_others_later,
        without_keeping_a_rescued_task_is_everybodys,
        what_was_moved_or_ended_since_is_kept_no_more,
        kept_tasks_are_claimed_by_queue_type_and_limit_in_order,
        a_quarantined_task_is_not_kept,
        a_node_that_does_not_live_gets_nothing_kept,
    ]
}

const OTHER_HOST: &str = "host-2";
const KEEP_MS: u64 = HOUR_MS;

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
            .expect("the node is good");
        id
    }

    async fn rescue_and_keep(&self, max_crashes: u32) -> Vec<TaskId> {
        let request = RescueRequest {
            asker: None,
            lease_ms: HOUR_MS,
            max_crashes,
            limit: MANY,
            keep_for_host_ms: KEEP_MS,
        };
        self.store
            .rescue_tasks(&request)
            .await
            .expect("the request is good")
            .requeued
    }

    async fn claim_kept(&self, node: NodeId, host: &str) -> Vec<Task> {
        let request = on(host, claim_request(node, &[QUEUE], &[KIND], MANY));
        self.store
            .claim_kept(&request)
            .await
            .expect("the node may claim")
    }

    /// Tasks that ran on `host-1`, whose node has died.
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

async fn a_kept_task_goes_to_its_host_at_once_and_to_others_later(fixture: Arc<Fixture>) {
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
    assert_eq!(fixture.rescue_and_keep(5).await, ids);
    let (here, there) = (
        fixture.node_on("host-1").await,
        fixture.node_on(OTHER_HOST).await,
    );
    assert!(fixture.claim(there, MANY).await.is_empty(), "kept");
    assert!(
        fixture.claim_kept(there, OTHER_HOST).await.is_empty(),
        "for another"
    );
    assert!(
        fixture
            .store
            .list_due(QUEUE, MANY)
            .await
            .unwrap()
            .is_empty(),
        "nobody is rung for it"
    );

    let request = claim_request(here, &[QUEUE], &[KIND], 1);
    let claimed = fixture.store.claim_kept(&request).await.unwrap();
    assert_eq!(ids_of(&claimed), ids[..1]);
    assert_eq!(
        claimed[0],
        fixture.task(ids[0]).await,
        "the answer is the row"
    );
    assert_eq!((claimed[0].attempt, claimed[0].crash_count), (2, 1));
    assert_eq!(claimed[0].checkpoint, Some(json("{\"at\":7}")));
    assert!(claimed[0].due_at <= claimed[0].last_attempt_at.unwrap());

    fixture.clock.advance_ms(KEEP_MS);
    assert_eq!(
        ids_of(&fixture.claim(there, MANY).await),
        ids[1..],
        "it has waited long enough"
    );
    assert!(fixture.claim_kept(here, "host-1").await.is_empty());
}

async fn without_keeping_a_rescued_task_is_everybodys(fixture: Arc<Fixture>) {
    let ids = fixture.orphans(vec![new_task()]).await;
    assert_eq!(fixture.rescue(5).await.requeued, ids);
    let (here, there) = (
        fixture.node_on("host-1").await,
        fixture.node_on(OTHER_HOST).await,
    );
    assert!(fixture.claim_kept(here, "host-1").await.is_empty());
    assert_eq!(ids_of(&fixture.claim(there, MANY).await), ids);
}

async fn what_was_moved_or_ended_since_is_kept_no_more(fixture: Arc<Fixture>) {
    let ids = fixture.orphans(vec![new_task(); 4]).await;
    assert_eq!(fixture.rescue_and_keep(5).await, ids);
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
    let (here, there) = (
        fixture.node_on("host-1").await,
        fixture.node_on(OTHER_HOST).await,
    );
    assert_eq!(
        ids_of(&fixture.claim(there, MANY).await),
        [ids[1]],
        "a person has moved it"
    );
    assert_eq!(
        ids_of(&fixture.claim_kept(here, "host-1").await),
        [ids[2]],
        "the others are kept no more"
    );
    assert_eq!(fixture.status(ids[0]).await, Status::Cancelled);
}

async fn kept_tasks_are_claimed_by_queue_type_and_limit_in_order(fixture: Arc<Fixture>) {
    let second = NewTask {
        queue: "second".into(),
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
    assert_eq!(fixture.rescue_and_keep(5).await.len(), 4);
    let here = fixture.node_on("host-1").await;
    fixture.store.pause_queue(QUEUE).await.unwrap();
    assert!(
        fixture.claim_kept(here, "host-1").await.is_empty(),
        "a paused queue hands out nothing"
    );
    fixture.store.resume_queue(QUEUE).await.unwrap();
    let request = claim_request(here, &[QUEUE], &[KIND], 1);
    assert_eq!(
        ids_of(&fixture.store.claim_kept(&request).await.unwrap()),
        [ids[3]]
    );
    assert_eq!(
        ids_of(&fixture.store.claim_kept(&request).await.unwrap()),
        [ids[2]]
    );
    assert!(fixture.store.claim_kept(&request).await.unwrap().is_empty());
    let all = claim_request(here, &[QUEUE, "second"], &[KIND, "other"], MANY);
    assert_eq!(
        ids_of(&fixture.store.claim_kept(&all).await.unwrap()).len(),
        2
    );
}

async fn a_quarantined_task_is_not_kept(fixture: Arc<Fixture>) {
    let ids = fixture.orphans(vec![new_task()]).await;
    assert!(fixture.rescue_and_keep(1).await.is_empty());
    assert_eq!(fixture.status(ids[0]).await, Status::DeadLetter);
    let here = fixture.node_on("host-1").await;
    assert!(fixture.claim_kept(here, "host-1").await.is_empty());
}

async fn a_node_that_does_not_live_gets_nothing_kept(fixture: Arc<Fixture>) {
    let ids = fixture.orphans(vec![new_task()]).await;
    assert_eq!(fixture.rescue_and_keep(5).await, ids);
    let answer = fixture
        .store
        .claim_kept(&claim_request(random_node_id(), &[QUEUE], &[KIND], MANY))
        .await;
    assert!(matches!(answer, Err(StoreError::NodeLost)), "{answer:?}");
    let here = fixture.node_on("host-1").await;
    let claimed = fixture.claim_kept(here, "host-1").await;
    assert_eq!(lease_of(&claimed[0]).attempt, 2);
}
