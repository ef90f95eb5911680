//! Commands for one task (cancel with its descendants, retry, reschedule) and pauses of queues.

use std::sync::Arc;

use longhaul_domain::{
    Attempt, AttemptEndKind, ChildCounts, Lease, NewTask, QueueName, Status, StoreError, TaskId,
    contract::store::{Access, AttemptEnd, RetryScope, Verdict},
    lifecycle::reschedule::Reschedule,
    queue::Queue,
};

use super::{
    case::{Case, cases},
    support::{
        HOUR_MS, KIND, MANY, QUEUE, completed, fatal, ids_of, json, new_task, random_uuid,
        refused_field, retryable, snoozed,
    },
};
use crate::{fixture::Fixture, names::queue_name};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_cancel_includes_all_descendants,
        a_cancel_does_not_change_ended_tasks,
        a_cancel_includes_open_tasks_below_an_ended_one,
        a_cancelled_child_counts_as_ended_for_its_parent,
        cancelling_an_ended_parent_does_not_cancel_its_children,
        a_cancelled_attempt_cannot_store_a_result,
        a_cancel_of_an_unknown_task_is_not_found,
        a_retry_resets_the_counters,
        a_retry_keeps_checkpoint_and_history,
        a_retry_resets_the_crashes_of_a_quarantined_task,
        a_retry_removes_a_passed_deadline,
        each_field_can_be_rescheduled_alone,
        a_rescheduled_task_moves_in_the_order_of_claims,
        the_time_of_a_running_task_cannot_be_changed,
        an_empty_reschedule_is_refused,
        lower_max_attempts_apply_from_the_next_failure,
        queues_are_listed_by_name_with_their_pause,
    ]
}

/// A tree of three levels: a waiting root, a waiting and a running middle task, and three leaves.
struct Tree {
    root: Lease,
    middles: Vec<Lease>,
    leaves: Vec<TaskId>,
}

async fn tree(fixture: &Fixture) -> Tree {
    let level = |name: &str| NewTask {
        task_type: name.into(),
        ..new_task()
    };
    let root = fixture.start(level("root")).await;

    fixture
        .submit_children(root, vec![level("middle"), level("middle")])
        .await;
    let node = fixture.node().await;
    let claimed = fixture.claim_from(node, &[QUEUE], &["middle"], 2).await;
    let middles: Vec<Lease> = claimed.iter().map(super::support::lease_of).collect();
    let mut leaves = fixture
        .submit_children(middles[0], vec![level("leaf"), level("leaf")])
        .await;

    leaves.extend(
        fixture
            .submit_children(middles[1], vec![level("leaf")])
            .await,
    );
    fixture.finish(root, completed()).await;
    fixture.finish(middles[0], completed()).await;

    Tree {
        root,
        middles,
        leaves,
    }
}

async fn a_cancel_includes_all_descendants(fixture: Arc<Fixture>) {
    let tree = tree(&fixture).await;
    let answer = fixture
        .store
        .cancel_task(&Access::All, tree.root.task_id)
        .await
        .unwrap();

    assert_eq!(answer.status, Status::Cancelled);
    let was = |name: &str| {
        answer
            .moved
            .iter()
            .filter(|one| one.task.task_type == name)
            .map(|one| one.was)
            .collect()
    };

    let before: [Vec<Status>; 3] = ["root", "middle", "leaf"].map(was);
    let middles = vec![Status::Waiting, Status::Running];
    assert_eq!(
        before,
        [vec![Status::Waiting], middles, vec![Status::Queued; 3]],
        "each move is returned once, with the status before"
    );

    for one in &answer.moved {
        assert_eq!(one.task, fixture.task(one.task.id).await, "and as it is");
    }

    for task in fixture.all_tasks().await {
        assert_eq!(task.status, Status::Cancelled, "{}", task.task_type);
        assert_eq!(
            task.children.cancelled, task.children.total,
            "the counters follow the cancelled children"
        );
        assert_eq!((task.result, task.lease_token), (None, None));
    }

    let stale = Verdict::Stale(Status::Cancelled);
    assert_eq!(fixture.finish(tree.middles[1], completed()).await, stale);
    let node = fixture.node().await;
    assert!(
        fixture
            .claim_from(node, &[QUEUE], &["leaf"], MANY)
            .await
            .is_empty()
    );
}

async fn a_cancel_does_not_change_ended_tasks(fixture: Arc<Fixture>) {
    let tree = tree(&fixture).await;
    fixture.run(tree.leaves[0], completed()).await;
    fixture.run(tree.leaves[1], fatal()).await;
    let ended = fixture.task(tree.middles[0].task_id).await;
    assert_eq!(ended.status, Status::CompletedWithErrors);
    fixture
        .store
        .cancel_task(&Access::All, tree.root.task_id)
        .await
        .unwrap();

    assert_eq!(fixture.task(tree.middles[0].task_id).await, ended);
    assert_eq!(fixture.status(tree.leaves[0]).await, Status::Completed);
    assert_eq!(fixture.status(tree.leaves[2]).await, Status::Cancelled);
    let root = fixture.task(tree.root.task_id).await;
    assert_eq!(root.status, Status::Cancelled);

    assert_eq!(
        root.children,
        ChildCounts {
            total: 2,
            with_errors: 1,
            cancelled: 1,
            ..ChildCounts::default()
        }
    );

    let again = fixture
        .store
        .cancel_task(&Access::All, tree.root.task_id)
        .await
        .unwrap();

    assert_eq!(
        (again.status, again.moved),
        (Status::Cancelled, Vec::new()),
        "a second cancel succeeds"
    );
    assert_eq!(
        fixture.task(tree.root.task_id).await,
        root,
        "a second cancel changes nothing"
    );
}

async fn a_cancel_includes_open_tasks_below_an_ended_one(fixture: Arc<Fixture>) {
    let tree = tree(&fixture).await;
    fixture.finish(tree.middles[1], fatal()).await;
    assert_eq!(fixture.status(tree.leaves[2]).await, Status::Queued);
    fixture
        .store
        .cancel_task(&Access::All, tree.root.task_id)
        .await
        .unwrap();
    assert_eq!(
        fixture.status(tree.middles[1].task_id).await,
        Status::Failed,
        "ended tasks do not change"
    );

    assert_eq!(
        fixture.status(tree.leaves[2]).await,
        Status::Cancelled,
        "open tasks below it are cancelled"
    );
}

async fn a_cancelled_child_counts_as_ended_for_its_parent(fixture: Arc<Fixture>) {
    let tree = tree(&fixture).await;
    fixture.run(tree.leaves[0], completed()).await;
    let answer = fixture
        .store
        .cancel_task(&Access::All, tree.leaves[1])
        .await
        .unwrap();
    let moved: Vec<_> = answer
        .moved
        .iter()
        .map(|one| (one.task.id, one.was, one.task.status))
        .collect();

    let parent = (
        tree.middles[0].task_id,
        Status::Waiting,
        Status::CompletedWithErrors,
    );

    assert_eq!(
        moved,
        [parent, (tree.leaves[1], Status::Queued, Status::Cancelled)],
        "the end of the parent is returned too"
    );
    assert_eq!(
        fixture.status(tree.middles[0].task_id).await,
        Status::CompletedWithErrors
    );

    fixture
        .store
        .cancel_task(&Access::All, tree.middles[1].task_id)
        .await
        .unwrap();
    assert_eq!(fixture.status(tree.leaves[2]).await, Status::Cancelled);
    assert_eq!(
        fixture.status(tree.root.task_id).await,
        Status::CompletedWithErrors
    );
}

async fn cancelling_an_ended_parent_does_not_cancel_its_children(fixture: Arc<Fixture>) {
    let parent = fixture.start(new_task()).await;
    let child = fixture.submit_children(parent, vec![new_task()]).await[0];
    fixture.finish(parent, fatal()).await;
    let answer = fixture
        .store
        .cancel_task(&Access::All, parent.task_id)
        .await
        .unwrap();

    assert_eq!(
        (answer.status, fixture.status(child).await),
        (Status::Failed, Status::Queued)
    );
}

async fn a_cancelled_attempt_cannot_store_a_result(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    fixture
        .store
        .save_progress(&[(lease, json("80"))])
        .await
        .unwrap();
    fixture
        .store
        .cancel_task(&Access::All, lease.task_id)
        .await
        .unwrap();

    let before = fixture.task(lease.task_id).await;
    for outcome in [
        completed(),
        fatal(),
        retryable(0),
        snoozed(0),
        AttemptEnd::HandedBack,
    ] {
        assert_eq!(
            fixture.finish(lease, outcome).await,
            Verdict::Stale(Status::Cancelled)
        );
    }

    assert_eq!(fixture.task(lease.task_id).await, before);
}

async fn a_cancel_of_an_unknown_task_is_not_found(fixture: Arc<Fixture>) {
    let nothing = TaskId(random_uuid());
    let answer = fixture.store.cancel_task(&Access::All, nothing).await;
    assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
    for scope in [RetryScope::Task, RetryScope::FailedChildren] {
        let answer = fixture.store.retry_task(&Access::All, nothing, scope).await;
        assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
    }

    let answer = fixture.store.get_task(&Access::All, nothing).await;
    assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
}

async fn a_retry_resets_the_counters(fixture: Arc<Fixture>) {
    let id = fixture
        .submit(NewTask {
            max_attempts: 2,
            ..new_task()
        })
        .await;

    for outcome in [snoozed(0), retryable(0), retryable(0)] {
        fixture.run(id, outcome).await;
    }

    assert_eq!(fixture.status(id).await, Status::DeadLetter);
    fixture
        .store
        .retry_task(&Access::All, id, RetryScope::Task)
        .await
        .unwrap();
    let task = fixture.task(id).await;

    assert_eq!(
        (task.status, task.error, task.finished_at),
        (Status::Queued, None, None)
    );

    assert_eq!(
        (
            task.retry_count,
            task.snooze_count,
            task.crash_count,
            task.attempt
        ),
        (0, 0, 0, 3)
    );

    assert_eq!(task.due_at, task.updated_at);
    assert_eq!(
        fixture.run(id, retryable(0)).await,
        Verdict::Applied(Status::Retrying),
        "it has all its attempts again"
    );
    assert_eq!(
        fixture.run(id, completed()).await,
        Verdict::Applied(Status::Completed)
    );

    assert_eq!(fixture.attempts(id).await.len(), 5);
}

async fn a_retry_keeps_checkpoint_and_history(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    fixture
        .store
        .save_checkpoint(&lease, &json("{\"page\":9}"))
        .await
        .unwrap();
    fixture
        .store
        .save_progress(&[(lease, json("90"))])
        .await
        .unwrap();

    fixture.finish(lease, fatal()).await;
    let attempts = fixture.attempts(lease.task_id).await;
    fixture
        .store
        .retry_task(&Access::All, lease.task_id, RetryScope::Task)
        .await
        .unwrap();
    let task = fixture.task(lease.task_id).await;

    assert_eq!(
        (task.checkpoint, task.progress),
        (Some(json("{\"page\":9}")), None)
    );
    assert_eq!(
        fixture.attempts(lease.task_id).await,
        attempts,
        "the history matches the row before"
    );

    assert_eq!(
        fixture.finish(lease, fatal()).await,
        Verdict::Stale(Status::Queued),
        "the old lease is stale"
    );
}

async fn a_retry_resets_the_crashes_of_a_quarantined_task(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    for expected in [Status::DeadLetter, Status::Queued] {
        let node = fixture.node().await;
        fixture.claim_this(node, id).await;
        fixture.store.retire_node(node).await.unwrap();
        fixture
            .rescue(if expected == Status::DeadLetter { 1 } else { 2 })
            .await;
        assert_eq!(fixture.task(id).await.status, expected);

        if expected == Status::DeadLetter {
            fixture
                .store
                .retry_task(&Access::All, id, RetryScope::Task)
                .await
                .unwrap();
        }
    }

    assert_eq!(fixture.task(id).await.crash_count, 1);
    let attempts = fixture.attempts(id).await;
    let crashed = |attempt: &Attempt| attempt.end == AttemptEndKind::Crashed;
    assert!(
        attempts.iter().all(crashed),
        "a retry does not change the history: {attempts:?}"
    );
}

async fn a_retry_removes_a_passed_deadline(fixture: Arc<Fixture>) {
    let deadline = fixture.store.now().await.unwrap().plus_ms(HOUR_MS);
    let id = fixture
        .submit(NewTask {
            deadline_at: Some(deadline),
            ..new_task()
        })
        .await;

    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.expire_deadlines().await, 1);
    fixture
        .store
        .retry_task(&Access::All, id, RetryScope::Task)
        .await
        .unwrap();
    assert_eq!(fixture.expire_deadlines().await, 0);
    assert_eq!(
        fixture.run(id, completed()).await,
        Verdict::Applied(Status::Completed)
    );
}

async fn each_field_can_be_rescheduled_alone(fixture: Arc<Fixture>) {
    let run_at = fixture.store.now().await.unwrap().plus_ms(HOUR_MS);
    let changes = [
        Reschedule {
            run_at: Some(run_at),
            ..Reschedule::default()
        },
        Reschedule {
            priority: Some(9),
            ..Reschedule::default()
        },
        Reschedule {
            max_attempts: Some(77),
            ..Reschedule::default()
        },
        Reschedule {
            queue: Some(queue_name("elsewhere")),
            ..Reschedule::default()
        },
    ];

    for change in changes {
        let id = fixture.submit(new_task()).await;
        let before = fixture.task(id).await;
        let answer = fixture
            .store
            .reschedule_task(&Access::All, id, &change)
            .await
            .unwrap();
        let after = fixture.task(id).await;

        assert_eq!(answer, after, "the answer is the row");
        let decided =
            longhaul_domain::lifecycle::reschedule::decide(&before, &change, after.updated_at)
                .unwrap();
        assert_eq!(after, decided.after, "{change:?}");
    }

    let names: Vec<QueueName> = fixture
        .store
        .list_queues()
        .await
        .unwrap()
        .into_iter()
        .map(|queue| queue.name)
        .collect();

    assert_eq!(
        names,
        ["elsewhere", QUEUE],
        "a queue is listed once a task is moved to it"
    );
}

async fn a_rescheduled_task_moves_in_the_order_of_claims(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 4]).await;
    let now = fixture.store.now().await.unwrap();
    let urgent = Reschedule {
        priority: Some(9),
        ..Reschedule::default()
    };
    let later = Reschedule {
        run_at: Some(now.plus_ms(HOUR_MS)),
        ..Reschedule::default()
    };

    let moved = Reschedule {
        queue: Some(queue_name("elsewhere")),
        ..Reschedule::default()
    };
    fixture
        .store
        .reschedule_task(&Access::All, ids[3], &urgent)
        .await
        .unwrap();

    fixture
        .store
        .reschedule_task(&Access::All, ids[0], &later)
        .await
        .unwrap();
    fixture
        .store
        .reschedule_task(&Access::All, ids[1], &moved)
        .await
        .unwrap();

    let node = fixture.node().await;
    assert_eq!(ids_of(&fixture.claim(node, MANY).await), [ids[3], ids[2]]);
    assert_eq!(
        ids_of(
            &fixture
                .claim_from(node, &["elsewhere"], &[KIND], MANY)
                .await
        ),
        [ids[1]]
    );

    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(ids_of(&fixture.claim(node, MANY).await), [ids[0]]);
}

async fn the_time_of_a_running_task_cannot_be_changed(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let before = fixture.task(lease.task_id).await;
    let change = Reschedule {
        run_at: Some(before.due_at),
        priority: Some(3),
        ..Reschedule::default()
    };
    let answer = fixture
        .store
        .reschedule_task(&Access::All, lease.task_id, &change)
        .await;
    assert!(matches!(answer, Err(StoreError::Refused(_))), "{answer:?}");

    assert_eq!(fixture.task(lease.task_id).await, before);
    let change = Reschedule {
        run_at: None,
        ..change
    };

    assert_eq!(
        fixture
            .store
            .reschedule_task(&Access::All, lease.task_id, &change)
            .await
            .unwrap()
            .priority,
        3
    );

    assert!(
        fixture.finish(lease, completed()).await.is_accepted(),
        "the attempt continues"
    );
}

async fn an_empty_reschedule_is_refused(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let answer = fixture
        .store
        .reschedule_task(&Access::All, id, &Reschedule::default())
        .await;
    assert_eq!(refused_field(answer), "change");
}

async fn lower_max_attempts_apply_from_the_next_failure(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    fixture.run(id, retryable(0)).await;
    let change = Reschedule {
        max_attempts: Some(2),
        ..Reschedule::default()
    };

    fixture
        .store
        .reschedule_task(&Access::All, id, &change)
        .await
        .unwrap();
    assert_eq!(
        fixture.run(id, retryable(0)).await,
        Verdict::Applied(Status::DeadLetter)
    );
}

async fn queues_are_listed_by_name_with_their_pause(fixture: Arc<Fixture>) {
    assert!(fixture.store.list_queues().await.unwrap().is_empty());
    fixture
        .store
        .pause_queue(&queue_name("later"))
        .await
        .unwrap();
    fixture
        .submit(NewTask {
            queue: queue_name("b"),
            ..new_task()
        })
        .await;

    fixture
        .submit(NewTask {
            queue: queue_name("B"),
            ..new_task()
        })
        .await;

    fixture.store.resume_queue(&queue_name("a")).await.unwrap();
    fixture.store.pause_queue(&queue_name("b")).await.unwrap();
    let queues = fixture.store.list_queues().await.unwrap();
    let listed: Vec<(&str, bool)> = queues
        .iter()
        .map(|queue| (queue.name.as_str(), queue.paused_at.is_some()))
        .collect();

    assert_eq!(
        listed,
        [("B", false), ("a", false), ("b", true), ("later", true)],
        "sorted by bytes, as in every store"
    );
    fixture.clock.advance_ms(HOUR_MS);
    fixture.store.pause_queue(&queue_name("b")).await.unwrap();
    assert_eq!(
        fixture.store.list_queues().await.unwrap(),
        queues,
        "a second pause changes nothing"
    );

    fixture.store.resume_queue(&queue_name("b")).await.unwrap();
    let resumed = Queue {
        name: queue_name("b"),
        paused_at: None,
    };

    assert!(
        fixture
            .store
            .list_queues()
            .await
            .unwrap()
            .contains(&resumed)
    );
}
