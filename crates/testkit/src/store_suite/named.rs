//! Claims by name: a node claims the tasks of the hints it received, if they are claimable.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_domain::{
    NewTask, NodeId, RunAt, Status, StoreError, TaskId, TaskRecord, bounds,
    contract::store::{Access, ClaimNamed},
    lifecycle,
};

use super::{
    case::{Case, cases},
    races::at_once,
    support::{
        HOUR_MS, KIND, MANY, claim_request, completed, ids_of, lease_of, new_task, random_node_id,
        random_uuid, refused_field, retryable,
    },
};
use crate::{fixture::Fixture, names::queue_name};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_claim_by_name_starts_an_attempt_like_any_claim,
        named_tasks_are_claimed_in_the_usual_order,
        many_named_tasks_are_claimed_at_once,
        tasks_that_cannot_be_claimed_are_left_out,
        types_that_the_node_does_not_serve_are_left_out,
        a_task_named_twice_is_claimed_once,
        naming_nothing_claims_nothing,
        a_retry_is_claimed_by_name_when_it_is_due,
        lost_nodes_claim_nothing_by_name,
        too_many_names_are_refused,
        sixteen_nodes_with_the_same_hints_claim_each_task_once,
        sixteen_nodes_with_one_hint_at_a_time_claim_each_task_once,
        claims_by_name_and_by_order_claim_each_task_once,
    ]
}

fn named(node_id: NodeId, ids: &[TaskId]) -> ClaimNamed {
    ClaimNamed {
        node_id,
        host: "host-1".to_owned(),
        task_types: vec![KIND.to_owned()],
        ids: ids.to_vec(),
    }
}

impl Fixture {
    async fn claim_named(&self, node: NodeId, ids: &[TaskId]) -> Vec<TaskRecord> {
        self.store
            .claim_named(&named(node, ids))
            .await
            .expect("the node may claim")
    }
}

async fn a_claim_by_name_starts_an_attempt_like_any_claim(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(), new_task()]).await;
    let before = fixture.task(ids[1]).await;
    let node = fixture.node().await;
    let claimed = fixture.claim_named(node, &ids[1..]).await;
    assert_eq!(
        claimed,
        [fixture.task(ids[1]).await],
        "the answer is the row"
    );

    let lease = lease_of(&claimed[0]);
    let started = claimed[0].last_attempt_at.unwrap();
    let decided = lifecycle::claim::decide(&before, node, "host-1", lease.token, started).unwrap();
    assert_eq!(
        claimed[0], decided.after,
        "the row is what the domain decides"
    );
    assert_eq!(
        fixture.status(ids[0]).await,
        Status::Queued,
        "other tasks are not claimed"
    );

    assert!(fixture.finish(lease, completed()).await.is_accepted());
}

async fn named_tasks_are_claimed_in_the_usual_order(fixture: Arc<Fixture>) {
    let now = fixture.store.now().await.unwrap();
    let place = |queue: &str, priority: u8, ms_ago: u64| NewTask {
        queue: queue_name(queue),
        priority,
        run_at: RunAt::At(now.minus_ms(ms_ago)),
        ..new_task()
    };

    let tasks = vec![
        place("a", 1, 500),
        place("b", 1, 900),
        place("a", 9, 1),
        place("b", 5, 3),
        place("a", 5, 3),
    ];

    let ids = fixture.submit_all(tasks).await;
    let node = fixture.node().await;
    let order: Vec<TaskId> = [2, 3, 4, 1, 0]
        .into_iter()
        .map(|index: usize| ids[index])
        .collect();

    assert_eq!(ids_of(&fixture.claim_named(node, &ids).await), order);
}

async fn many_named_tasks_are_claimed_at_once(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 333]).await;
    let node = fixture.node().await;
    let claimed = fixture.claim_named(node, &ids).await;
    assert_eq!(ids_of(&claimed), ids);
    assert!(
        claimed
            .iter()
            .all(|task| (task.status, task.attempt) == (Status::Running, 1))
    );
}

async fn tasks_that_cannot_be_claimed_are_left_out(fixture: Arc<Fixture>) {
    let running = fixture.start(new_task()).await.task_id;
    let ended = fixture.submit(new_task()).await;
    fixture
        .store
        .cancel_task(&Access::All, ended)
        .await
        .unwrap();
    let early = fixture
        .submit(NewTask {
            run_at: RunAt::AfterMs(HOUR_MS),
            ..new_task()
        })
        .await;

    let paused = fixture
        .submit(NewTask {
            queue: queue_name("paused"),
            ..new_task()
        })
        .await;

    fixture
        .store
        .pause_queue(&queue_name("paused"))
        .await
        .unwrap();
    let good = fixture.submit(new_task()).await;
    let node = fixture.node().await;
    let asked = [running, ended, early, paused, TaskId(random_uuid()), good];
    for one in &asked[..5] {
        assert!(
            fixture
                .claim_named(node, std::slice::from_ref(one))
                .await
                .is_empty(),
            "nor alone"
        );
    }

    assert_eq!(ids_of(&fixture.claim_named(node, &asked).await), [good]);
    assert!(
        fixture.claim_named(node, &asked).await.is_empty(),
        "the claimable task is running now"
    );
    fixture
        .store
        .resume_queue(&queue_name("paused"))
        .await
        .unwrap();
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(
        ids_of(&fixture.claim_named(node, &asked).await),
        [paused, early]
    );
}

async fn types_that_the_node_does_not_serve_are_left_out(fixture: Arc<Fixture>) {
    let other = fixture
        .submit(NewTask {
            task_type: "other".into(),
            ..new_task()
        })
        .await;

    let known = fixture.submit(new_task()).await;
    let node = fixture.node().await;
    assert!(
        fixture.claim_named(node, &[other]).await.is_empty(),
        "nor alone"
    );
    assert_eq!(
        ids_of(&fixture.claim_named(node, &[other, known]).await),
        [known]
    );

    assert_eq!(fixture.status(other).await, Status::Queued);
}

async fn a_task_named_twice_is_claimed_once(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let node = fixture.node().await;
    let claimed = fixture.claim_named(node, &[id, id, id]).await;
    assert_eq!(ids_of(&claimed), [id]);
    assert_eq!(fixture.task(id).await.attempt, 1);
}

async fn naming_nothing_claims_nothing(fixture: Arc<Fixture>) {
    fixture.submit(new_task()).await;
    let node = fixture.node().await;
    assert!(fixture.claim_named(node, &[]).await.is_empty());
}

async fn a_retry_is_claimed_by_name_when_it_is_due(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    fixture.finish(lease, retryable(HOUR_MS)).await;
    let node = fixture.node().await;
    assert!(fixture.claim_named(node, &[lease.task_id]).await.is_empty());
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(
        fixture.claim_named(node, &[lease.task_id]).await[0].attempt,
        2
    );
}

async fn lost_nodes_claim_nothing_by_name(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let lost = fixture.node().await;
    fixture.clock.advance_ms(2 * HOUR_MS);
    fixture.rescue(5).await;
    for node in [lost, random_node_id()] {
        let answer = fixture.store.claim_named(&named(node, &[id])).await;
        assert!(matches!(answer, Err(StoreError::NodeLost)), "{answer:?}");
    }

    assert_eq!(fixture.status(id).await, Status::Queued);
}

async fn too_many_names_are_refused(fixture: Arc<Fixture>) {
    let node = fixture.node().await;
    let many = vec![TaskId(random_uuid()); bounds::CLAIM_BATCH + 1];
    assert_eq!(
        refused_field(fixture.store.claim_named(&named(node, &many)).await),
        "ids"
    );
    let nowhere = ClaimNamed {
        host: String::new(),
        ..named(node, &[])
    };

    assert_eq!(
        refused_field(fixture.store.claim_named(&nowhere).await),
        "host"
    );
}

async fn sixteen_nodes_with_the_same_hints_claim_each_task_once(fixture: Arc<Fixture>) {
    let ids = Arc::new(fixture.submit_all(vec![new_task(); 2_000]).await);
    let claimers = (0..16).map(|number: usize| {
        let fixture = Arc::clone(&fixture);
        let ids = Arc::clone(&ids);
        async move {
            let node = fixture.node().await;
            let mut taken = Vec::new();
            for round in 0..ids.len() / 50 {
                // Each node starts at another task and tries all.
                let from = (number * 7 + round) % (ids.len() / 50) * 50;
                taken.extend(ids_of(
                    &fixture.claim_named(node, &ids[from..from + 50]).await,
                ));
            }

            taken
        }
    });

    let mut taken: Vec<TaskId> = at_once(claimers).await.concat();
    // Rows that another claim had locked were skipped, so one more round claims the rest.
    let node = fixture.node().await;
    taken.extend(ids_of(&fixture.claim_named(node, &ids[..1_000]).await));
    taken.extend(ids_of(&fixture.claim_named(node, &ids[1_000..]).await));
    assert_eq!(taken.len(), ids.len(), "each task is taken once");
    assert_eq!(
        BTreeSet::from_iter(&taken),
        BTreeSet::from_iter(ids.iter()),
        "no task is missed"
    );
}

async fn sixteen_nodes_with_one_hint_at_a_time_claim_each_task_once(fixture: Arc<Fixture>) {
    let ids = Arc::new(fixture.submit_all(vec![new_task(); 60]).await);
    let claimers = (0..16).map(|_| {
        let fixture = Arc::clone(&fixture);
        let ids = Arc::clone(&ids);
        async move {
            let node = fixture.node().await;
            let mut taken = Vec::new();
            for id in ids.iter() {
                taken.extend(ids_of(
                    &fixture.claim_named(node, std::slice::from_ref(id)).await,
                ));
            }

            taken
        }
    });

    let mut taken: Vec<TaskId> = at_once(claimers).await.concat();
    taken.sort();
    assert_eq!(taken, *ids, "each task is taken once");
}

async fn claims_by_name_and_by_order_claim_each_task_once(fixture: Arc<Fixture>) {
    let ids = Arc::new(fixture.submit_all(vec![new_task(); 1_000]).await);
    let claimers = (0..8).map(|number: usize| {
        let fixture = Arc::clone(&fixture);
        let ids = Arc::clone(&ids);
        async move {
            let node = fixture.node().await;
            let mut taken = Vec::new();
            for part in ids.chunks(40) {
                taken.extend(match number % 2 {
                    0 => ids_of(&fixture.claim_named(node, part).await),
                    _ => ids_of(&fixture.claim(node, 20).await),
                });
            }

            taken
        }
    });

    let mut taken: Vec<TaskId> = at_once(claimers).await.concat();
    let node = fixture.node().await;
    taken.extend(ids_of(
        &fixture
            .store
            .claim_tasks(&claim_request(node, &["lane"], &[KIND], MANY))
            .await
            .unwrap(),
    ));

    assert_eq!(taken.len(), ids.len(), "each task is taken once");
    assert_eq!(
        BTreeSet::from_iter(&taken),
        BTreeSet::from_iter(ids.iter()),
        "no task is missed"
    );
}
