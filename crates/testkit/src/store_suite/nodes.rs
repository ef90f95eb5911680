//! Nodes: heartbeats, progress, checkpoints, deaths, and zombies, which may do nothing.

use std::sync::Arc;

use longhaul_domain::{
    AttemptEndKind, Json, Lease, NewTask, NodeId, Serves, Status, StoreError, TaskId, TaskRecord,
    bounds,
    contract::store::{Access, AttemptReport, RescueRequest, Verdict},
};

use super::{
    case::{Case, cases},
    support::{
        HOUR_MS, MANY, completed, ids_of, json, lease_of, new_task, random_node_id, random_uuid,
        retryable, snoozed,
    },
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_heartbeat_returns_only_lost_leases,
        a_heartbeat_protects_the_nodes_tasks_from_rescue,
        a_heartbeat_of_an_unknown_or_lost_node_is_refused,
        registering_the_same_node_again_changes_nothing_else,
        nodes_are_listed_with_their_names,
        progress_is_stored_with_one_verdict_per_report,
        a_checkpoint_survives_to_the_next_attempt,
        a_dead_nodes_tasks_are_queued_again_and_charged_as_a_crash,
        a_retired_nodes_tasks_are_rescued_at_once,
        a_rescue_takes_the_oldest_tasks_within_its_limit,
        the_node_that_asks_for_a_rescue_is_not_declared_dead,
        a_zombie_is_refused_after_its_task_was_rescued,
        a_zombie_is_refused_after_its_task_was_claimed_again,
        a_restarted_node_with_the_old_name_is_another_node,
        a_task_that_kills_its_nodes_is_quarantined,
        a_sole_process_takes_over_the_tasks_of_all_others,
        batches_of_reports_are_bounded,
    ]
}

async fn a_heartbeat_returns_only_lost_leases(fixture: Arc<Fixture>) {
    fixture.submit_all(vec![new_task(); 5]).await;
    let node = fixture.node().await;
    let leases: Vec<Lease> = fixture
        .claim(node, MANY)
        .await
        .iter()
        .map(lease_of)
        .collect();

    assert_eq!(
        fixture.store.heartbeat_node(node, &leases).await.unwrap(),
        []
    );
    fixture
        .store
        .cancel_task(&Access::All, leases[1].task_id)
        .await
        .unwrap();

    fixture.finish(leases[2], completed()).await;
    fixture.finish(leases[3], snoozed(0)).await;
    let missing = Lease {
        task_id: TaskId(random_uuid()),
        ..leases[0]
    };
    let asked = [leases.clone(), vec![missing]].concat();
    let gone = fixture.store.heartbeat_node(node, &asked).await.unwrap();
    let expected = [
        (leases[1], Verdict::Stale(Status::Cancelled)),
        (leases[2], Verdict::Stale(Status::Completed)),
        (leases[3], Verdict::Stale(Status::Retrying)),
        (missing, Verdict::Missing),
    ];

    assert_eq!(gone, expected);
    assert_eq!(
        fixture.store.heartbeat_node(node, &[]).await.unwrap(),
        [],
        "a node without leases is fine"
    );
}

async fn a_heartbeat_protects_the_nodes_tasks_from_rescue(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let node = fixture.node().await;
    let lease = fixture.claim_this(node, id).await;

    for _ in 0..5 {
        fixture.clock.advance_ms(HOUR_MS / 2);
        assert_eq!(
            fixture.store.heartbeat_node(node, &[lease]).await.unwrap(),
            []
        );
        assert!(
            fixture.rescue(5).await.requeued.is_empty(),
            "a task may run as long as its node is alive"
        );
    }

    let before = fixture.task(id).await;
    assert_eq!(before.attempt, 1);
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.rescue(5).await.requeued, [id]);
}

async fn a_heartbeat_of_an_unknown_or_lost_node_is_refused(fixture: Arc<Fixture>) {
    let answer = fixture.store.heartbeat_node(random_node_id(), &[]).await;
    assert!(matches!(answer, Err(StoreError::NodeLost)), "{answer:?}");
    let node = fixture.node().await;
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(
        fixture.store.heartbeat_node(node, &[]).await.unwrap(),
        [],
        "late, but not declared dead yet"
    );

    fixture.clock.advance_ms(HOUR_MS);
    fixture.rescue(5).await;
    let answer = fixture.store.heartbeat_node(node, &[]).await;
    assert!(
        matches!(answer, Err(StoreError::NodeLost)),
        "a dead node stays dead: {answer:?}"
    );
}

async fn registering_the_same_node_again_changes_nothing_else(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let node = fixture.node().await;
    let lease = fixture.claim_this(node, id).await;
    fixture
        .store
        .register_node(node, "node-1", "host-1", None)
        .await
        .unwrap();
    assert_eq!(fixture.store.list_nodes().await.unwrap().len(), 1);

    assert_eq!(
        fixture.store.heartbeat_node(node, &[lease]).await.unwrap(),
        []
    );
}

async fn nodes_are_listed_with_their_names(fixture: Arc<Fixture>) {
    let id = random_node_id();
    let queues = vec!["free_default".to_owned(), "größer".to_owned()];
    let serves = Serves {
        queues,
        task_types: vec!["novel.write".to_owned()],
        slots: 7,
    };

    fixture
        .store
        .register_node(id, "worker-ü", "host 7", Some(&serves))
        .await
        .unwrap();
    let nodes = fixture.store.list_nodes().await.unwrap();

    assert_eq!(nodes.len(), 1);
    let node = &nodes[0];
    assert_eq!(
        (node.id, node.name.as_str(), node.host.as_str()),
        (id, "worker-ü", "host 7")
    );
    assert_eq!((node.started_at, node.lost_at), (node.heartbeat_at, None));
    assert_eq!(node.serves, Some(serves));
    fixture.clock.advance_ms(1_000);

    fixture.store.heartbeat_node(id, &[]).await.unwrap();
    let later = &fixture.store.list_nodes().await.unwrap()[0];
    assert!(later.heartbeat_at.micros_since(node.heartbeat_at) >= 1_000_000);
    assert_eq!(later.started_at, node.started_at);
    fixture.store.retire_node(id).await.unwrap();
    fixture
        .store
        .retire_node(id)
        .await
        .expect("a retired node may retire again");

    assert!(fixture.store.list_nodes().await.unwrap().is_empty());
}

async fn progress_is_stored_with_one_verdict_per_report(fixture: Arc<Fixture>) {
    fixture.submit_all(vec![new_task(); 3]).await;
    let node = fixture.node().await;
    let tasks = fixture.claim(node, MANY).await;
    let leases: Vec<Lease> = tasks.iter().map(lease_of).collect();
    fixture.finish(leases[1], completed()).await;
    let progress = |lease: &Lease, text: &str| (*lease, json(text));
    let reports = [
        progress(&leases[0], "{\"percent\":10}"),
        progress(&leases[1], "99"),
        progress(&leases[2], "7"),
        progress(&leases[0], "20"),
    ];

    let verdicts = fixture.store.save_progress(&reports).await.unwrap();
    let running = Verdict::Applied(Status::Running);
    assert_eq!(
        verdicts,
        [running, Verdict::Stale(Status::Completed), running, running]
    );
    let after = fixture.task(tasks[0].id).await;

    assert_eq!(after.progress, Some(json("20")), "the last report counts");
    assert!(after.version > tasks[0].version && after.updated_at > tasks[0].updated_at);
    assert_eq!(
        (after.status, after.attempt, after.lease_token),
        (Status::Running, 1, tasks[0].lease_token)
    );
    assert_eq!(fixture.task(tasks[1].id).await.progress, None);
}

async fn a_checkpoint_survives_to_the_next_attempt(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let page = json("{\"page\":41, \"seen\":[1,2,3]}");
    let verdict = fixture.store.save_checkpoint(&lease, &page).await.unwrap();
    assert_eq!(verdict, Verdict::Applied(Status::Running));
    fixture.finish(lease, retryable(0)).await;
    let node = fixture.node().await;
    let again = &fixture.claim(node, 1).await[0];

    assert_eq!(
        (again.attempt, &again.checkpoint),
        (2, &Some(page.clone())),
        "a failure does not remove it"
    );
    fixture.store.retire_node(node).await.unwrap();
    fixture.rescue(5).await;
    let node = fixture.node().await;
    let again = &fixture.claim(node, 1).await[0];

    assert_eq!(
        (again.attempt, &again.checkpoint),
        (3, &Some(page)),
        "a crash does not remove it"
    );
}

async fn a_dead_nodes_tasks_are_queued_again_and_charged_as_a_crash(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let due_at = fixture.task(lease.task_id).await.due_at;
    fixture.clock.advance_ms(HOUR_MS);
    let rescued = fixture.rescue(5).await;
    assert_eq!(
        (rescued.requeued, rescued.quarantined),
        (vec![lease.task_id], vec![])
    );
    let task = fixture.task(lease.task_id).await;

    assert_eq!(
        (task.status, task.crash_count, task.retry_count),
        (Status::Queued, 1, 0)
    );
    assert_eq!(task.due_at, due_at, "it keeps its place");
    let attempts = fixture.attempts(lease.task_id).await;

    assert_eq!(
        (attempts.len(), attempts[0].end),
        (1, AttemptEndKind::Crashed)
    );
    assert_eq!(attempts[0].error.as_ref().unwrap().class, "crash");
    let nodes = fixture.store.list_nodes().await.unwrap();

    assert!(
        nodes.iter().all(|node| node.lost_at.is_some()),
        "the node is declared dead"
    );
    assert!(
        fixture.rescue(5).await.requeued.is_empty(),
        "a second rescue finds nothing"
    );
}

async fn a_retired_nodes_tasks_are_rescued_at_once(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let node = fixture.node().await;
    fixture.claim_this(node, id).await;
    assert!(fixture.rescue(5).await.requeued.is_empty());
    fixture.store.retire_node(node).await.unwrap();
    assert_eq!(fixture.rescue(5).await.requeued, [id]);
    assert_eq!(
        fixture.task(id).await.crash_count,
        1,
        "its running tasks count as crashed"
    );
}

async fn a_rescue_takes_the_oldest_tasks_within_its_limit(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 7]).await;
    let node = fixture.node().await;
    fixture.claim(node, MANY).await;
    fixture.store.retire_node(node).await.unwrap();
    let request = RescueRequest {
        asker: None,
        lease_ms: HOUR_MS,
        max_crashes: 5,
        limit: 3,
        host_affinity_ms: 0,
    };

    for expected in [&ids[..3], &ids[3..6], &ids[6..], &[]] {
        let mut rescued = fixture.store.rescue_tasks(&request).await.unwrap().requeued;
        rescued.sort_unstable();
        assert_eq!(rescued, expected);
    }
}

async fn the_node_that_asks_for_a_rescue_is_not_declared_dead(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 2]).await;
    let asker = fixture.node().await;
    let other = fixture.node().await;
    let lease = fixture.claim_this(asker, ids[0]).await;
    fixture.claim_this(other, ids[1]).await;

    // The machine was suspended, or the clock was set forward.
    fixture.clock.advance_ms(2 * HOUR_MS);
    let request = RescueRequest {
        asker: Some(asker),
        lease_ms: HOUR_MS,
        max_crashes: 5,
        limit: MANY,
        host_affinity_ms: 0,
    };

    assert_eq!(
        fixture.store.rescue_tasks(&request).await.unwrap().requeued,
        [ids[1]]
    );
    assert_eq!(
        fixture.store.heartbeat_node(asker, &[lease]).await.unwrap(),
        []
    );
}

/// Asserts that no write under the lease has an effect.
async fn assert_powerless(fixture: &Fixture, zombie: Lease) {
    let before = fixture.task(zombie.task_id).await;
    let stale = Verdict::Stale(before.status);
    for outcome in [completed(), retryable(0), snoozed(0)] {
        assert_eq!(fixture.finish(zombie, outcome).await, stale);
    }

    let progress: Json = json("1");
    let saved: Json = json("2");
    assert_eq!(
        fixture
            .store
            .save_progress(&[(zombie, progress)])
            .await
            .unwrap(),
        [stale]
    );

    assert_eq!(
        fixture
            .store
            .save_checkpoint(&zombie, &saved)
            .await
            .unwrap(),
        stale
    );

    let child = fixture
        .store
        .submit_task(NewTask {
            parent: Some(zombie),
            ..new_task()
        })
        .await;
    assert!(matches!(child, Err(StoreError::Refused(_))), "{child:?}");
    assert_eq!(fixture.task(zombie.task_id).await, before);
}

async fn a_zombie_is_refused_after_its_task_was_rescued(fixture: Arc<Fixture>) {
    let zombie = fixture.start(new_task()).await;
    fixture.clock.advance_ms(HOUR_MS);
    fixture.rescue(5).await;
    assert_powerless(&fixture, zombie).await;
}

async fn a_zombie_is_refused_after_its_task_was_claimed_again(fixture: Arc<Fixture>) {
    let zombie = fixture.start(new_task()).await;
    fixture.clock.advance_ms(HOUR_MS);
    fixture.rescue(5).await;
    let node = fixture.node().await;
    let successor = fixture.claim_this(node, zombie.task_id).await;

    assert_eq!(successor.attempt, 2);
    assert_powerless(&fixture, zombie).await;
    assert_eq!(
        fixture.finish(successor, completed()).await,
        Verdict::Applied(Status::Completed)
    );
    assert_powerless(&fixture, zombie).await;
}

async fn a_restarted_node_with_the_old_name_is_another_node(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let first: NodeId = random_node_id();
    let second: NodeId = random_node_id();
    fixture
        .store
        .register_node(first, "pod-0", "host-1", None)
        .await
        .unwrap();
    let zombie = fixture.claim_this(first, id).await;

    fixture.store.retire_node(first).await.unwrap();
    fixture
        .store
        .register_node(second, "pod-0", "host-1", None)
        .await
        .unwrap();
    assert_eq!(
        fixture.rescue(5).await.requeued,
        [id],
        "the new process has no lease of the old one's task"
    );

    let lease = fixture.claim_this(second, id).await;
    assert_powerless(&fixture, zombie).await;
    assert!(fixture.finish(lease, completed()).await.is_accepted());
}

async fn a_task_that_kills_its_nodes_is_quarantined(fixture: Arc<Fixture>) {
    let id = fixture
        .submit(NewTask {
            max_attempts: 1,
            ..new_task()
        })
        .await;

    for crash in 1..=3 {
        let node = fixture.node().await;
        fixture.claim_this(node, id).await;
        fixture.store.retire_node(node).await.unwrap();
        let rescued = fixture.rescue(3).await;
        let expected = if crash < 3 {
            (vec![id], vec![])
        } else {
            (vec![], vec![id])
        };

        assert_eq!((rescued.requeued, rescued.quarantined), expected);
    }

    let task = fixture.task(id).await;
    assert_eq!(
        (task.status, task.crash_count, task.retry_count),
        (Status::DeadLetter, 3, 0)
    );
    assert!(
        task.error.unwrap().message.contains("quarantined"),
        "it says why"
    );

    let attempts = fixture.attempts(id).await;
    assert!(
        attempts.len() == 3
            && attempts
                .iter()
                .all(|attempt| attempt.end == AttemptEndKind::Crashed)
    );
}

async fn a_sole_process_takes_over_the_tasks_of_all_others(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 2]).await;
    let dead = fixture.node().await;
    let survivor = fixture.node().await;
    fixture.claim_this(dead, ids[0]).await;
    let mine = fixture.claim_this(survivor, ids[1]).await;

    let take = async |job, node| {
        fixture
            .store
            .take_maintenance_lease(job, node, HOUR_MS)
            .await
            .unwrap()
            .map(|lease| lease.epoch)
    };

    assert_eq!(
        (take("rescuer", dead).await, take("pruner", survivor).await),
        (Some(1), Some(1))
    );
    assert_eq!(take("rescuer", survivor).await, None);
    fixture.store.declare_others_dead(survivor).await.unwrap();
    assert_eq!(
        fixture.rescue(5).await.requeued,
        [ids[0]],
        "at once, without waiting for the lease"
    );

    assert_eq!(
        take("rescuer", survivor).await,
        Some(2),
        "without waiting for the dead node's maintenance lease"
    );
    assert_eq!(
        take("pruner", dead).await,
        None,
        "the survivor's tasks do not change"
    );

    assert_eq!(
        fixture
            .store
            .heartbeat_node(survivor, &[mine])
            .await
            .unwrap(),
        []
    );

    let answer = fixture.store.heartbeat_node(dead, &[]).await;
    assert!(matches!(answer, Err(StoreError::NodeLost)), "{answer:?}");
}

async fn batches_of_reports_are_bounded(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let node = fixture.node().await;
    let too_many = bounds::CLAIM_BATCH + 1;
    let answer = fixture
        .store
        .heartbeat_node(node, &vec![lease; too_many])
        .await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))));
    let answer = fixture
        .store
        .save_progress(&vec![(lease, json("1")); too_many])
        .await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))));

    let report = AttemptReport {
        lease,
        end: completed(),
    };
    let answer = fixture.store.finish_tasks(&vec![report; too_many]).await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))));
    let tasks: Vec<TaskRecord> = fixture.all_tasks().await;

    assert_eq!(
        (ids_of(&tasks), tasks[0].status),
        (vec![lease.task_id], Status::Running)
    );
}
