//! Lists: every filter, both orders, and pages without gaps or repetitions.

use std::{collections::BTreeSet, sync::Arc};

use longhaul_domain::{
    NewTask, RunAt, Status, StoreError, TaskId, Timestamp, bounds,
    contract::store::Access,
    filter::{PageRequest, SortOrder, TaskFilter},
};

use super::{
    case::{Case, cases},
    support::{
        HOUR_MS, MANY, OWNER, completed, fatal, ids_of, new_task, random_uuid, refused_field,
        retryable, with,
    },
};
use crate::{fixture::Fixture, names::queue_name};

pub(super) fn cases() -> Vec<Case> {
    cases![
        each_condition_finds_exactly_its_tasks,
        all_conditions_of_a_filter_apply,
        a_time_range_includes_its_start_and_excludes_its_end,
        both_orders_are_by_id,
        pages_have_no_gaps_and_no_repeats,
        pages_are_complete_while_tasks_are_submitted_and_end,
        only_a_full_page_has_a_next_one,
        a_listed_task_is_the_whole_row,
        a_page_size_of_zero_or_above_the_bound_is_refused,
        attempts_are_listed_in_order_with_the_running_one,
        attempts_are_listed_in_pages,
        tasks_ahead_are_counted_in_the_order_of_claims,
    ]
}

async fn found(fixture: &Fixture, filter: TaskFilter) -> Vec<TaskId> {
    ids_of(
        &fixture
            .list(&Access::All, &filter, SortOrder::OldestFirst, MANY)
            .await,
    )
}

async fn each_condition_finds_exactly_its_tasks(fixture: Arc<Fixture>) {
    let named = |text: &str| text.to_owned();
    let ids = fixture
        .submit_all(vec![
            new_task(),
            with(new_task(), |task| task.owner = named("u-2").into()),
            with(new_task(), |task| task.task_type = named("other").into()),
            with(new_task(), |task| task.queue = queue_name(&named("fast"))),
            with(new_task(), |task| task.task_key = Some(named("k"))),
        ])
        .await;

    let parent = with(new_task(), |task| task.task_type = named("parent").into());
    let parent = fixture.start(parent).await;
    let child = with(new_task(), |task| task.task_type = named("child").into());
    let child = fixture.submit_children(parent, vec![child]).await[0];
    fixture.run(ids[0], completed()).await;

    let all = [ids.clone(), vec![parent.task_id, child]].concat();
    assert_eq!(found(&fixture, TaskFilter::default()).await, all);

    let two = vec![Status::Running, Status::Completed, Status::DeadLetter];
    let types = vec![named("child"), named("other"), named("unknown")];
    let unknown = TaskId(random_uuid());
    let filter = |change: &dyn Fn(&mut TaskFilter)| with(TaskFilter::default(), change);
    let expected = [
        (
            filter(&|filter| filter.owner = Some(named("u-2"))),
            vec![ids[1]],
        ),
        (
            filter(&|filter| filter.statuses = vec![Status::Running]),
            vec![parent.task_id],
        ),
        (
            filter(&|filter| filter.statuses = two.clone()),
            vec![ids[0], parent.task_id],
        ),
        (
            filter(&|filter| filter.task_types = types.clone()),
            vec![ids[2], child],
        ),
        (
            filter(&|filter| filter.queues = vec![queue_name(&named("fast"))]),
            vec![ids[3]],
        ),
        (
            filter(&|filter| filter.task_key = Some(named("k"))),
            vec![ids[4]],
        ),
        (
            filter(&|filter| filter.parent_id = Some(parent.task_id)),
            vec![child],
        ),
        (filter(&|filter| filter.parent_id = Some(unknown)), vec![]),
    ];

    for (filter, expected) in expected {
        assert_eq!(
            found(&fixture, filter.clone()).await,
            expected,
            "{filter:?}"
        );
    }

    for status in Status::ALL {
        let filter = filter(&|filter| filter.statuses = vec![status]);
        let tasks = fixture
            .list(&Access::All, &filter, SortOrder::OldestFirst, MANY)
            .await;
        assert!(tasks.iter().all(|task| task.status == status));
    }
}

async fn all_conditions_of_a_filter_apply(fixture: Arc<Fixture>) {
    let of = |owner: &str, queue: &str, key: Option<&str>| NewTask {
        owner: owner.into(),
        queue: queue_name(queue),
        task_key: key.map(str::to_owned),
        ..new_task()
    };

    let tasks = vec![
        of("a", "x", Some("k")),
        of("a", "x", None),
        of("a", "y", Some("k")),
        of("b", "x", Some("k")),
    ];

    let ids = fixture.submit_all(tasks).await;
    let filter = TaskFilter {
        owner: Some("a".to_owned()),
        queues: vec![queue_name("x"), queue_name("z")],
        task_key: Some("k".to_owned()),
        statuses: vec![Status::Queued, Status::Running],
        task_types: vec!["work".to_owned()],
        ..TaskFilter::default()
    };

    assert_eq!(found(&fixture, filter.clone()).await, [ids[0]]);
    let theirs = fixture
        .list(
            &Access::Owner("b".to_owned()),
            &filter,
            SortOrder::OldestFirst,
            MANY,
        )
        .await;

    assert!(
        theirs.is_empty(),
        "an owner's filter does not widen the access"
    );
}

async fn a_time_range_includes_its_start_and_excludes_its_end(fixture: Arc<Fixture>) {
    let mut ids = Vec::new();
    let mut created = Vec::new();
    for hours in [3, 2, 1] {
        let run_at = RunAt::AfterMs(10 * hours * HOUR_MS);
        let id = fixture
            .submit(with(new_task(), |task| task.run_at = run_at))
            .await;
        created.push(fixture.task(id).await.created_at);
        ids.push(id);
        fixture.clock.advance_ms(HOUR_MS);
    }

    let second = created[1];
    let due = fixture.task(ids[1]).await.due_at;
    let just_after = |at: Timestamp| Timestamp::from_micros(at.as_micros() + 1);
    let filter = |change: &dyn Fn(&mut TaskFilter)| with(TaskFilter::default(), change);
    let between = TaskFilter {
        due_after: Some(due),
        due_before: Some(just_after(due)),
        ..TaskFilter::default()
    };

    let expected = [
        (
            filter(&|filter| filter.created_after = Some(second)),
            &ids[1..],
        ),
        (
            filter(&|filter| filter.created_after = Some(just_after(second))),
            &ids[2..],
        ),
        (
            filter(&|filter| filter.created_before = Some(second)),
            &ids[..1],
        ),
        (
            filter(&|filter| filter.created_before = Some(just_after(second))),
            &ids[..2],
        ),
        (filter(&|filter| filter.due_after = Some(due)), &ids[..2]),
        (filter(&|filter| filter.due_before = Some(due)), &ids[2..]),
        (between, &ids[1..2]),
    ];

    for (filter, expected) in expected {
        assert_eq!(
            found(&fixture, filter.clone()).await,
            expected,
            "{filter:?}"
        );
    }
}

async fn both_orders_are_by_id(fixture: Arc<Fixture>) {
    let mut ids = fixture.submit_all(vec![new_task(); 5]).await;
    let access = Access::All;
    let any = TaskFilter::default();

    assert_eq!(
        ids_of(
            &fixture
                .list(&access, &any, SortOrder::OldestFirst, MANY)
                .await
        ),
        ids
    );

    ids.reverse();
    assert_eq!(
        ids_of(
            &fixture
                .list(&access, &any, SortOrder::NewestFirst, MANY)
                .await
        ),
        ids
    );

    let first = fixture
        .store
        .list_tasks(&access, &any, &PageRequest::first(2))
        .await
        .unwrap();

    assert_eq!(
        ids_of(&first.items),
        ids[..2],
        "the default order is newest first"
    );
}

async fn pages_have_no_gaps_and_no_repeats(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 23]).await;
    for order in [SortOrder::OldestFirst, SortOrder::NewestFirst] {
        for size in [1, 2, 7, 22, 23, 24] {
            let all = ids_of(
                &fixture
                    .list(&Access::All, &TaskFilter::default(), order, size)
                    .await,
            );

            assert_eq!(all.len(), ids.len(), "{order:?}, {size}");
            assert_eq!(
                BTreeSet::from_iter(all),
                BTreeSet::from_iter(ids.clone()),
                "{order:?}, {size}"
            );
        }
    }
}

async fn pages_are_complete_while_tasks_are_submitted_and_end(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 6]).await;
    let filter = TaskFilter {
        statuses: vec![Status::Queued],
        ..TaskFilter::default()
    };
    let mut page = PageRequest {
        order: SortOrder::NewestFirst,
        after: None,
        size: 2,
    };

    let first = fixture
        .store
        .list_tasks(&Access::All, &filter, &page)
        .await
        .unwrap();

    assert_eq!(ids_of(&first.items), [ids[5], ids[4]]);
    fixture.submit(new_task()).await;
    fixture
        .store
        .cancel_task(&Access::All, ids[4])
        .await
        .unwrap();
    fixture
        .store
        .cancel_task(&Access::All, ids[3])
        .await
        .unwrap();

    page.after = first.next;
    let second = fixture
        .store
        .list_tasks(&Access::All, &filter, &page)
        .await
        .unwrap();

    assert_eq!(ids_of(&second.items), [ids[2], ids[1]]);
}

async fn only_a_full_page_has_a_next_one(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 3]).await;
    let page = |size| PageRequest {
        order: SortOrder::OldestFirst,
        after: None,
        size,
    };
    let any = TaskFilter::default();

    for (size, next) in [(2, Some(ids[1])), (3, Some(ids[2])), (4, None)] {
        assert_eq!(
            fixture
                .store
                .list_tasks(&Access::All, &any, &page(size))
                .await
                .unwrap()
                .next,
            next
        );
    }

    let past = PageRequest {
        after: Some(ids[2]),
        ..page(3)
    };
    let empty = fixture
        .store
        .list_tasks(&Access::All, &any, &past)
        .await
        .unwrap();
    assert!(empty.items.is_empty() && empty.next.is_none());
}

async fn a_listed_task_is_the_whole_row(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    fixture.run(id, fatal()).await;
    assert_eq!(fixture.all_tasks().await, [fixture.task(id).await]);
}

async fn a_page_size_of_zero_or_above_the_bound_is_refused(fixture: Arc<Fixture>) {
    let any = TaskFilter::default();
    for size in [0, bounds::PAGE_SIZE + 1] {
        let answer = fixture
            .store
            .list_tasks(&Access::All, &any, &PageRequest::first(size))
            .await;
        assert_eq!(refused_field(answer), "size");
    }

    let crowded = TaskFilter {
        task_types: vec!["a".to_owned(); 101],
        ..TaskFilter::default()
    };

    let answer = fixture
        .store
        .list_tasks(
            &Access::Owner(OWNER.to_owned()),
            &crowded,
            &PageRequest::first(1),
        )
        .await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
}

async fn attempts_are_listed_in_order_with_the_running_one(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    assert!(
        fixture.attempts(id).await.is_empty(),
        "there is no attempt before the first claim"
    );
    fixture.run(id, super::support::retryable(0)).await;
    let node = fixture.node().await;

    fixture.claim_this(node, id).await;
    let attempts = fixture.attempts(id).await;
    let task = fixture.task(id).await;
    assert_eq!(
        attempts
            .iter()
            .map(|attempt| attempt.attempt)
            .collect::<Vec<_>>(),
        [1, 2]
    );

    let running = &attempts[1];
    assert_eq!(
        Some(running),
        longhaul_domain::Attempt::of_row(&task).as_ref()
    );
    assert_eq!(
        (running.node_id, running.ended_at, running.started_at),
        (Some(node), None, task.last_attempt_at)
    );

    assert!(attempts[0].node_id.is_some_and(|first| first != node));
}

async fn attempts_are_listed_in_pages(fixture: Arc<Fixture>) {
    let id = fixture
        .submit(NewTask {
            max_attempts: 10,
            ..new_task()
        })
        .await;

    for _ in 0..4 {
        fixture.run(id, retryable(0)).await;
    }

    let node = fixture.node().await;
    fixture.claim_this(node, id).await;
    let page = async |after, limit| {
        let found = fixture
            .store
            .list_attempts(&Access::All, id, after, limit)
            .await
            .unwrap();
        found.iter().map(|one| one.attempt).collect::<Vec<_>>()
    };

    assert_eq!(page(0, 2).await, [1, 2]);
    assert_eq!(page(2, 2).await, [3, 4]);
    assert_eq!(page(3, 2).await, [4, 5], "the one that runs is the last");
    assert_eq!(page(4, 2).await, [5]);
    assert!(page(5, 2).await.is_empty());
    assert_eq!(
        refused_field(fixture.store.list_attempts(&Access::All, id, 0, 0).await),
        "limit"
    );
}

async fn tasks_ahead_are_counted_in_the_order_of_claims(fixture: Arc<Fixture>) {
    let later = NewTask {
        run_at: RunAt::AfterMs(HOUR_MS),
        ..new_task()
    };

    let ids = fixture
        .submit_all(vec![
            new_task(),
            NewTask {
                task_type: "other".into(),
                ..new_task()
            },
            NewTask {
                priority: 5,
                ..new_task()
            },
            NewTask {
                queue: queue_name("elsewhere"),
                ..new_task()
            },
            NewTask {
                priority: 9,
                ..later.clone()
            },
            later,
            new_task(),
        ])
        .await;

    let ahead = async |n: usize, limit| {
        let task = fixture.task(ids[n]).await;
        let now = fixture.store.now().await.unwrap();
        fixture.store.count_ahead(&task, now, limit).await.unwrap()
    };

    assert_eq!(
        ahead(2, MANY).await,
        0,
        "a higher priority goes first, if it is due"
    );
    assert_eq!(ahead(0, MANY).await, 1);
    assert_eq!(ahead(6, MANY).await, 3);
    assert_eq!(ahead(6, 2).await, 2);
    assert_eq!(ahead(3, MANY).await, 0, "each queue is for itself");

    fixture.run(ids[2], completed()).await;
    assert_eq!(ahead(6, MANY).await, 2);
}
