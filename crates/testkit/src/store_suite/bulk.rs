//! Bulk changes: exactly the matching tasks, in bounded steps.

use std::sync::Arc;

use longhaul_domain::{
    NewTask, Status, StoreError, TaskId, bounds,
    contract::store::{Access, BulkChange, BulkOutcome, BulkRequest},
    filter::TaskFilter,
    lifecycle::reschedule::Reschedule,
};

use super::{
    case::{Case, cases},
    support::{HOUR_MS, MANY, completed, fatal, new_task, refused_field},
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_bulk_cancel_changes_and_counts_matching_tasks,
        a_bulk_change_continues_after_its_limit,
        a_bulk_cancel_includes_descendants,
        a_bulk_cancel_spares_running_tasks_of_types_that_are_not_cancellable,
        a_bulk_cancel_counts_a_child_cancelled_with_its_parent,
        a_bulk_cancel_of_children_ends_their_parents,
        a_bulk_retry_retries_only_retryable_tasks,
        a_bulk_reschedule_skips_other_tasks,
        an_invalid_bulk_change_changes_nothing,
    ]
}

fn all_of(kind: &str) -> TaskFilter {
    TaskFilter {
        task_types: vec![kind.to_owned()],
        ..TaskFilter::default()
    }
}

fn request(filter: TaskFilter, change: BulkChange) -> BulkRequest {
    BulkRequest {
        access: Access::All,
        filter,
        change,
        spared: Vec::new(),
        after: None,
        limit: MANY,
    }
}

fn of_kind(kind: &str) -> NewTask {
    NewTask {
        task_type: kind.into(),
        ..new_task()
    }
}

async fn a_bulk_cancel_changes_and_counts_matching_tasks(fixture: Arc<Fixture>) {
    let ids = fixture
        .submit_all(["a", "b", "a", "a", "a"].map(of_kind).to_vec())
        .await;
    fixture.run(ids[0], completed()).await;
    fixture
        .store
        .cancel_task(&Access::All, ids[4])
        .await
        .unwrap();

    let ended = [fixture.task(ids[0]).await, fixture.task(ids[4]).await];
    let outcome = fixture
        .store
        .change_tasks(&request(all_of("a"), BulkChange::Cancel))
        .await
        .unwrap();

    assert_eq!(
        outcome,
        BulkOutcome {
            matched: 4,
            changed: 2,
            next: None
        }
    );

    assert_eq!(
        [fixture.task(ids[0]).await, fixture.task(ids[4]).await],
        ended,
        "ended tasks do not change"
    );
    assert_eq!(
        fixture.status(ids[1]).await,
        Status::Queued,
        "other tasks do not change"
    );

    assert_eq!(fixture.status(ids[2]).await, Status::Cancelled);
    assert_eq!(fixture.status(ids[3]).await, Status::Cancelled);
}

async fn a_bulk_change_continues_after_its_limit(fixture: Arc<Fixture>) {
    let mut ids: Vec<TaskId> = Vec::new();
    for _ in 0..6 {
        ids.push(fixture.submit(of_kind("a")).await);
        fixture.submit(of_kind("b")).await;
    }

    let change = Reschedule {
        priority: Some(4),
        ..Reschedule::default()
    };
    let mut step = BulkRequest {
        limit: 2,
        ..request(all_of("a"), BulkChange::Reschedule(change))
    };

    for pair in ids.chunks(2) {
        let outcome = fixture.store.change_tasks(&step).await.unwrap();
        assert_eq!(
            outcome,
            BulkOutcome {
                matched: 2,
                changed: 2,
                next: Some(pair[1])
            },
            "older tasks first"
        );

        step.after = outcome.next;
    }

    let outcome = fixture.store.change_tasks(&step).await.unwrap();
    assert_eq!(
        outcome,
        BulkOutcome {
            matched: 0,
            changed: 0,
            next: None
        },
        "a full last step is followed by an empty one"
    );

    for task in fixture.all_tasks().await {
        let expected = if task.task_type == "a" {
            (4, 2)
        } else {
            (1, 1)
        };

        assert_eq!(
            (task.priority, task.version),
            expected,
            "each task is changed once"
        );
    }
}

async fn a_bulk_cancel_includes_descendants(fixture: Arc<Fixture>) {
    let parent = fixture.start(of_kind("parent")).await;
    fixture
        .submit_children(parent, vec![of_kind("child"), of_kind("child")])
        .await;
    let outcome = fixture
        .store
        .change_tasks(&request(all_of("parent"), BulkChange::Cancel))
        .await
        .unwrap();

    assert_eq!(
        outcome,
        BulkOutcome {
            matched: 1,
            changed: 1,
            next: None
        },
        "only matching tasks are counted"
    );

    assert!(
        fixture
            .all_tasks()
            .await
            .iter()
            .all(|task| task.status == Status::Cancelled)
    );
}

async fn a_bulk_cancel_counts_a_child_cancelled_with_its_parent(fixture: Arc<Fixture>) {
    let parent = fixture.start(of_kind("a")).await;
    fixture
        .submit_children(parent, vec![of_kind("a"), of_kind("b")])
        .await;
    fixture.finish(parent, completed()).await;
    let outcome = fixture
        .store
        .change_tasks(&request(all_of("a"), BulkChange::Cancel))
        .await
        .unwrap();

    assert_eq!(
        outcome,
        BulkOutcome {
            matched: 2,
            changed: 2,
            next: None
        }
    );

    assert!(
        fixture
            .all_tasks()
            .await
            .iter()
            .all(|task| task.status == Status::Cancelled)
    );
}

async fn a_bulk_cancel_of_children_ends_their_parents(fixture: Arc<Fixture>) {
    let parent = fixture.start(of_kind("parent")).await;
    let children = fixture
        .submit_children(parent, vec![of_kind("child"); 3])
        .await;
    fixture.finish(parent, completed()).await;
    fixture.run(children[0], completed()).await;
    let outcome = fixture
        .store
        .change_tasks(&request(all_of("child"), BulkChange::Cancel))
        .await
        .unwrap();

    assert_eq!(
        outcome,
        BulkOutcome {
            matched: 3,
            changed: 2,
            next: None
        }
    );

    let task = fixture.task(parent.task_id).await;
    assert_eq!(
        (task.status, task.children.cancelled),
        (Status::CompletedWithErrors, 2)
    );
}

async fn a_bulk_retry_retries_only_retryable_tasks(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 4]).await;
    fixture.run(ids[0], fatal()).await;
    fixture.run(ids[1], completed()).await;
    fixture
        .store
        .cancel_task(&Access::All, ids[2])
        .await
        .unwrap();
    let outcome = fixture
        .store
        .change_tasks(&request(TaskFilter::default(), BulkChange::Retry))
        .await
        .unwrap();

    assert_eq!(
        outcome,
        BulkOutcome {
            matched: 4,
            changed: 2,
            next: None
        }
    );

    let statuses: Vec<Status> = fixture
        .all_tasks()
        .await
        .iter()
        .map(|task| task.status)
        .collect();

    assert_eq!(
        statuses,
        [
            Status::Queued,
            Status::Completed,
            Status::Queued,
            Status::Queued
        ]
    );
}

async fn a_bulk_reschedule_skips_other_tasks(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 3]).await;
    fixture.run(ids[0], completed()).await;
    let node = fixture.node().await;
    fixture.claim_this(node, ids[1]).await;
    let run_at = fixture.store.now().await.unwrap().plus_ms(HOUR_MS);
    let change = Reschedule {
        run_at: Some(run_at),
        ..Reschedule::default()
    };

    let step = request(TaskFilter::default(), BulkChange::Reschedule(change));
    let outcome = fixture.store.change_tasks(&step).await.unwrap();
    assert_eq!(
        outcome,
        BulkOutcome {
            matched: 3,
            changed: 1,
            next: None
        }
    );

    assert_eq!(fixture.task(ids[2]).await.due_at, run_at);
}

async fn an_invalid_bulk_change_changes_nothing(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let nothing = request(
        TaskFilter::default(),
        BulkChange::Reschedule(Reschedule::default()),
    );

    assert_eq!(
        refused_field(fixture.store.change_tasks(&nothing).await),
        "change"
    );
    let empty_owner = TaskFilter {
        owner: Some(String::new()),
        ..TaskFilter::default()
    };
    let answer = fixture
        .store
        .change_tasks(&request(empty_owner, BulkChange::Cancel))
        .await;

    assert_eq!(refused_field(answer), "userId");
    let greedy = BulkRequest {
        limit: bounds::MAINTENANCE_BATCH + 1,
        ..request(TaskFilter::default(), BulkChange::Cancel)
    };
    let answer = fixture.store.change_tasks(&greedy).await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    assert_eq!(fixture.status(id).await, Status::Queued);
}

async fn a_bulk_cancel_spares_running_tasks_of_types_that_are_not_cancellable(
    fixture: Arc<Fixture>,
) {
    let ids = fixture
        .submit_all(["a", "b", "a"].map(of_kind).to_vec())
        .await;
    let node = fixture.node().await;
    fixture.claim_this(node, ids[0]).await;
    fixture.claim_this(node, ids[1]).await;
    let change = BulkRequest {
        spared: vec!["a".to_owned()],
        ..request(TaskFilter::default(), BulkChange::Cancel)
    };

    let outcome = fixture.store.change_tasks(&change).await.unwrap();
    assert_eq!((outcome.matched, outcome.changed), (3, 2));
    assert_eq!(fixture.status(ids[0]).await, Status::Running);
    assert_eq!(
        fixture.status(ids[1]).await,
        Status::Cancelled,
        "its type is cancellable"
    );
    assert_eq!(
        fixture.status(ids[2]).await,
        Status::Cancelled,
        "it was not running"
    );
}
