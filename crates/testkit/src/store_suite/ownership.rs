//! Ownership: for a caller, the tasks of other owners do not exist.

use std::sync::Arc;

use longhaul_domain::{
    NewTask, Status, StoreError, TaskRecord,
    contract::store::{Access, BulkChange, BulkOutcome, BulkRequest, RetryScope},
    filter::{SortOrder, TaskFilter},
    lifecycle::reschedule::Reschedule,
};

use super::{
    case::{Case, cases},
    support::{MANY, OWNER, fatal, ids_of, new_task},
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        an_owner_reads_and_changes_its_own_tasks,
        the_task_of_another_owner_is_not_found,
        lists_and_bulk_changes_are_limited_to_the_owner,
        a_child_may_have_another_owner,
    ]
}

fn mine() -> Access {
    Access::Owner(OWNER.to_owned())
}

fn theirs() -> Access {
    Access::Owner("u-2".to_owned())
}

fn assert_not_found<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
}

async fn an_owner_reads_and_changes_its_own_tasks(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    assert_eq!(
        fixture.store.get_task(&mine(), id).await.unwrap(),
        fixture.task(id).await
    );
    let change = Reschedule {
        priority: Some(2),
        ..Reschedule::default()
    };

    assert_eq!(
        fixture
            .store
            .reschedule_task(&mine(), id, &change)
            .await
            .unwrap()
            .priority,
        2
    );

    assert_eq!(
        fixture.store.cancel_task(&mine(), id).await.unwrap().status,
        Status::Cancelled
    );
    fixture
        .store
        .retry_task(&mine(), id, RetryScope::Task)
        .await
        .unwrap();

    assert_eq!(
        fixture
            .store
            .list_attempts(&mine(), id, 0, 10)
            .await
            .unwrap(),
        []
    );
}

async fn the_task_of_another_owner_is_not_found(fixture: Arc<Fixture>) {
    let queued = fixture.submit(new_task()).await;
    let failed = fixture
        .submit(NewTask {
            task_type: "failing".into(),
            ..new_task()
        })
        .await;

    fixture.run(failed, fatal()).await;
    let before: Vec<TaskRecord> = fixture.all_tasks().await;
    let change = Reschedule {
        priority: Some(2),
        ..Reschedule::default()
    };

    for id in [queued, failed] {
        assert_not_found(fixture.store.get_task(&theirs(), id).await);
        assert_not_found(fixture.store.list_attempts(&theirs(), id, 0, 10).await);
        assert_not_found(fixture.store.cancel_task(&theirs(), id).await);
        assert_not_found(
            fixture
                .store
                .retry_task(&theirs(), id, RetryScope::Task)
                .await,
        );

        assert_not_found(
            fixture
                .store
                .retry_task(&theirs(), id, RetryScope::FailedChildren)
                .await,
        );

        assert_not_found(fixture.store.reschedule_task(&theirs(), id, &change).await);
    }

    assert_eq!(fixture.all_tasks().await, before);
}

async fn lists_and_bulk_changes_are_limited_to_the_owner(fixture: Arc<Fixture>) {
    let other = NewTask {
        owner: "u-2".into(),
        ..new_task()
    };
    let ids = fixture
        .submit_all(vec![new_task(), other.clone(), new_task(), other])
        .await;
    let any = TaskFilter::default();
    let listed = fixture
        .list(&theirs(), &any, SortOrder::OldestFirst, MANY)
        .await;

    assert_eq!(ids_of(&listed), [ids[1], ids[3]]);
    let filter = TaskFilter {
        owner: Some(OWNER.to_owned()),
        ..TaskFilter::default()
    };
    let change = BulkChange::Cancel;

    let sneaky = BulkRequest {
        access: theirs(),
        filter,
        change: change.clone(),
        spared: Vec::new(),
        after: None,
        limit: MANY,
    };

    let outcome = fixture.store.change_tasks(&sneaky).await.unwrap();
    assert_eq!(
        outcome,
        BulkOutcome {
            matched: 0,
            changed: 0,
            next: None
        }
    );

    let request = BulkRequest {
        access: theirs(),
        filter: any,
        change,
        spared: Vec::new(),
        after: None,
        limit: MANY,
    };

    let outcome = fixture.store.change_tasks(&request).await.unwrap();
    assert_eq!(
        outcome,
        BulkOutcome {
            matched: 2,
            changed: 2,
            next: None
        }
    );

    for (index, task) in fixture.all_tasks().await.iter().enumerate() {
        let expected = if index % 2 == 1 {
            Status::Cancelled
        } else {
            Status::Queued
        };
        assert_eq!(task.status, expected);
    }
}

async fn a_child_may_have_another_owner(fixture: Arc<Fixture>) {
    let parent = fixture.start(new_task()).await;
    let child = NewTask {
        owner: "u-2".into(),
        task_type: "child".into(),
        ..new_task()
    };
    let child = fixture.submit_children(parent, vec![child]).await[0];

    assert_eq!(
        fixture
            .store
            .get_task(&theirs(), child)
            .await
            .unwrap()
            .owner,
        "u-2"
    );

    fixture
        .store
        .cancel_task(&mine(), parent.task_id)
        .await
        .unwrap();
    assert_eq!(
        fixture.status(child).await,
        Status::Cancelled,
        "all descendants are cancelled"
    );
}
