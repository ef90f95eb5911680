//! Retention: tasks that ended long ago are pruned, children only with their parent.

use std::sync::Arc;

use longhaul_domain::{
    NewTask, Status, StoreError, TaskId,
    contract::store::{Access, RetryScope, Verdict},
    filter::Retention,
};

use super::{
    case::{Case, cases},
    support::{HOUR_MS, MANY, completed, fatal, ids_of, new_task, random_uuid},
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        the_retention_depends_on_how_a_task_ended,
        open_tasks_are_never_pruned,
        children_are_pruned_with_their_parent,
        an_open_descendant_at_any_depth_protects_the_tree,
        prunable_tasks_are_listed_page_by_page,
        a_task_that_was_retried_between_list_and_prune_stays,
        a_pruned_task_is_gone_with_its_attempts,
        a_retry_restarts_the_retention,
    ]
}

const KEEP: Retention = Retention {
    ended_ms: HOUR_MS,
    dead_letter_ms: 3 * HOUR_MS,
};

async fn prunable(fixture: &Fixture) -> Vec<TaskId> {
    let page = fixture
        .store
        .list_prunable(&KEEP, None, MANY)
        .await
        .unwrap();
    assert_eq!(page.next, None);
    ids_of(&page.items)
}

async fn prune(fixture: &Fixture, ids: &[TaskId]) -> usize {
    fixture.store.prune_tasks(&KEEP, ids).await.unwrap()
}

async fn the_retention_depends_on_how_a_task_ended(fixture: Arc<Fixture>) {
    let ids = fixture
        .submit_all(vec![
            new_task(),
            new_task(),
            NewTask {
                max_attempts: 1,
                ..new_task()
            },
        ])
        .await;

    fixture.run(ids[0], completed()).await;
    fixture.run(ids[1], fatal()).await;
    fixture.run(ids[2], super::support::retryable(0)).await;
    let cancelled = fixture.submit(new_task()).await;
    fixture
        .store
        .cancel_task(&Access::All, cancelled)
        .await
        .unwrap();

    let all = [ids.clone(), vec![cancelled]].concat();
    assert_eq!(
        (prunable(&fixture).await, prune(&fixture, &all).await),
        (vec![], 0),
        "all are young"
    );
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(prunable(&fixture).await, [ids[0], cancelled]);
    assert_eq!(
        prune(&fixture, &all).await,
        2,
        "dead letters are stored longer"
    );

    fixture.clock.advance_ms(2 * HOUR_MS);
    assert_eq!(prunable(&fixture).await, ids[1..]);
    assert_eq!(prune(&fixture, &all).await, 2);
    assert!(fixture.all_tasks().await.is_empty());
}

async fn open_tasks_are_never_pruned(fixture: Arc<Fixture>) {
    let queued = fixture
        .submit(NewTask {
            task_type: "unknown".into(),
            ..new_task()
        })
        .await;

    let running = fixture.start(new_task()).await.task_id;
    fixture.clock.advance_ms(1_000 * HOUR_MS);
    assert_eq!(
        (
            prunable(&fixture).await,
            prune(&fixture, &[queued, running]).await
        ),
        (vec![], 0)
    );

    assert_eq!(
        prune(&fixture, &[TaskId(random_uuid())]).await,
        0,
        "an empty list is no error"
    );
}

async fn children_are_pruned_with_their_parent(fixture: Arc<Fixture>) {
    let parent = fixture.start(new_task()).await;
    let children = fixture.submit_children(parent, vec![new_task(); 2]).await;
    fixture.run(children[0], completed()).await;
    fixture.run(children[1], completed()).await;
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(
        (prunable(&fixture).await, prune(&fixture, &children).await),
        (vec![], 0)
    );

    fixture.finish(parent, completed()).await;
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(
        prunable(&fixture).await,
        [parent.task_id],
        "children are not listed alone"
    );
    assert_eq!(
        prune(&fixture, &children).await,
        0,
        "the children of a remaining parent remain"
    );

    assert_eq!(prune(&fixture, &[parent.task_id]).await, 3);
    assert!(fixture.all_tasks().await.is_empty());
}

async fn an_open_descendant_at_any_depth_protects_the_tree(fixture: Arc<Fixture>) {
    let level = |name: &str| NewTask {
        task_type: name.into(),
        ..new_task()
    };
    let root = fixture.start(level("root")).await;
    let middle = fixture.submit_children(root, vec![level("middle")]).await[0];
    let node = fixture.node().await;
    let middle = fixture.claim_this(node, middle).await;
    let leaf = fixture.submit_children(middle, vec![level("leaf")]).await[0];

    fixture.finish(middle, fatal()).await;
    assert_eq!(
        fixture.finish(root, completed()).await,
        Verdict::Applied(Status::Failed)
    );
    fixture.clock.advance_ms(100 * HOUR_MS);
    assert_eq!(fixture.status(leaf).await, Status::Queued);
    assert_eq!(
        (
            prunable(&fixture).await,
            prune(&fixture, &[root.task_id]).await
        ),
        (vec![], 0)
    );

    fixture.run(leaf, completed()).await;
    assert_eq!(prunable(&fixture).await, [root.task_id]);
    assert_eq!(prune(&fixture, &[root.task_id]).await, 3);
}

async fn prunable_tasks_are_listed_page_by_page(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 5]).await;
    for id in &ids {
        fixture.run(*id, completed()).await;
    }

    let open = fixture.submit(new_task()).await;
    fixture.clock.advance_ms(HOUR_MS);
    let mut after = None;
    for expected in [&ids[..2], &ids[2..4], &ids[4..]] {
        let page = fixture.store.list_prunable(&KEEP, after, 2).await.unwrap();
        assert_eq!(ids_of(&page.items), expected);
        assert_eq!(page.next, (expected.len() == 2).then(|| expected[1]));
        after = page.next;
    }

    let listed = fixture
        .store
        .list_prunable(&KEEP, None, 1)
        .await
        .unwrap()
        .items;

    assert_eq!(
        listed[0],
        fixture.task(ids[0]).await,
        "the whole row is returned for export"
    );
    assert_eq!(prune(&fixture, &ids).await, 5);
    assert_eq!(ids_of(&fixture.all_tasks().await), [open]);
}

async fn a_task_that_was_retried_between_list_and_prune_stays(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    fixture.run(id, fatal()).await;
    fixture.clock.advance_ms(3 * HOUR_MS);
    assert_eq!(prunable(&fixture).await, [id]);
    fixture
        .store
        .retry_task(&Access::All, id, RetryScope::Task)
        .await
        .unwrap();

    assert_eq!(prune(&fixture, &[id]).await, 0);
    assert_eq!(fixture.status(id).await, Status::Queued);
}

async fn a_pruned_task_is_gone_with_its_attempts(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    fixture.run(id, super::support::retryable(0)).await;
    fixture.run(id, completed()).await;
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(
        prune(&fixture, &[id, id]).await,
        1,
        "an id twice in one list counts once"
    );

    let answer = fixture.store.list_attempts(&Access::All, id, 0, 10).await;
    assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
    assert!(!fixture.exists(id).await);
}

async fn a_retry_restarts_the_retention(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    fixture.run(id, fatal()).await;
    fixture.clock.advance_ms(2 * HOUR_MS);
    fixture
        .store
        .retry_task(&Access::All, id, RetryScope::Task)
        .await
        .unwrap();
    fixture.run(id, fatal()).await;

    fixture.clock.advance_ms(2 * HOUR_MS);
    assert_eq!(prunable(&fixture).await, []);
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(prunable(&fixture).await, [id]);
}
