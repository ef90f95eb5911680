//! Lists: every filter, both orders, and pages without gaps or repeats.

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
        retryable,
    },
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        each_condition_finds_its_tasks_and_no_others,
        several_conditions_hold_together,
        times_are_from_and_before,
        both_orders_run_along_the_ids,
        pages_have_no_gaps_and_no_repeats,
        pages_go_on_where_they_ended_while_tasks_come_and_end,
        a_page_tells_where_the_next_one_starts_only_if_it_is_full,
        a_listed_task_is_the_whole_row,
        a_page_of_nothing_or_too_much_is_refused,
        attempts_are_listed_first_to_last_with_the_running_one,
        attempts_are_listed_in_pages,
        those_ahead_of_a_task_are_counted_in_the_order_of_claims,
    ]
}

async fn found(fixture: &Fixture, filter: TaskFilter) -> Vec<TaskId> {
    ids_of(
        &fixture
            .list(&Access::All, &filter, SortOrder::OldestFirst, MANY)
            .await,
    )
}

async fn each_condition_finds_its_tasks_and_no_others(fixture: Arc<Fixture>) {
    let named = |text: &str| text.to_owned();
    let ids = fixture
        .submit_all(vec![
            new_task(),
            NewTask {
                owner: named("u-2").into(),
                ..new_task()
            },
            NewTask {
                task_type: named("other").into(),
                ..new_task()
            },
            NewTask {
                queue: named("fast").into(),
                ..new_task()
            },
            NewTask {
                task_key: Some(named("k")),
                ..new_task()
            },
        ])
        .await;
    let parent = fixture
        .start(NewTask {
            task_type: named("parent").into(),
            ..new_task()
        })
        .await;
    let child = fixture
        .submit_children(
            parent,
            vec![NewTask {
                task_type: named("child").into(),
                ..new_task()
            }],
        )
        .await[0];
    fixture.run(ids[0], completed()).await;
    let any = TaskFilter::default;
    let all = [ids.clone(), vec![parent.task_id, child]].concat();
    assert_eq!(found(&fixture, any()).await, all);
    assert_eq!(
        found(
            &fixture,
            TaskFilter {
                owner: Some(named("u-2")),
                ..any()
            }
        )
        .await,
        [ids[1]]
    );
    assert_eq!(
        found(
            &fixture,
            TaskFilter {
                statuses: vec![Status::Running],
                ..any()
            }
        )
        .await,
        [parent.task_id]
    );
    let two = vec![Status::Running, Status::Completed, Status::DeadLetter];
    assert_eq!(
        found(
            &fixture,
            TaskFilter {
                statuses: two,
                ..any()
            }
        )
        .await,
        [ids[0], parent.task_id]
    );
    let types = vec![named("child"), named("other"), named("unknown")];
    assert_eq!(
        found(
            &fixture,
            TaskFilter {
                task_types: types,
                ..any()
            }
        )
        .await,
        [ids[2], child]
    );
    assert_eq!(
        found(
            &fixture,
            TaskFilter {
                queues: vec![named("fast")],
                ..any()
            }
        )
        .await,
        [ids[3]]
    );
    assert_eq!(
        found(
            &fixture,
            TaskFilter {
                task_key: Some(named("k")),
                ..any()
            }
        )
        .await,
        [ids[4]]
    );
    assert_eq!(
        found(
            &fixture,
            TaskFilter {
                parent_id: Some(parent.task_id),
                ..any()
            }
        )
        .await,
        [child]
    );
    assert_eq!(
        found(
            &fixture,
            TaskFilter {
                parent_id: Some(TaskId(random_uuid())),
                ..any()
            }
        )
        .await,
        []
    );
    for status in Status::ALL {
        let filter = TaskFilter {
            statuses: vec![status],
            ..any()
        };
        let tasks = fixture
            .list(&Access::All, &filter, SortOrder::OldestFirst, MANY)
            .await;
        assert!(tasks.iter().all(|task| task.status == status));
    }
}

async fn several_conditions_hold_together(fixture: Arc<Fixture>) {
    let of = |owner: &str, queue: &str, key: Option<&str>| NewTask {
        owner: owner.into(),
        queue: queue.into(),
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
        queues: vec!["x".to_owned(), "z".to_owned()],
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

async fn times_are_from_and_before(fixture: Arc<Fixture>) {
    let mut ids = Vec::new();
    let mut created = Vec::new();
    for hours in [3, 2, 1] {
        let id = fixture
            .submit(NewTask {
                run_at: RunAt::AfterMs(10 * hours * HOUR_MS),
                ..new_task()
            })
            .await;
        created.push(fixture.task(id).await.created_at);
        ids.push(id);
        fixture.clock.advance_ms(HOUR_MS);
    }
    let any = TaskFilter::default;
    let just_after = |at: Timestamp| Timestamp::from_micros(at.as_micros() + 1);
    assert_eq!(
        found(
            &fixture,
            TaskFilter {
                created_after: Some(created[1]),
                ..any()
            }
        )
        .await,
        ids[1..]
    );
    assert_eq!(
        found(
            &fixture,
            TaskFilter {
                created_after: Some(just_after(created[1])),
                ..any()
            }
        )
        .await,
        ids[2..]
    );
    assert_eq!(
        found(
            &fixture,
            TaskFilter {
                created_before: Some(created[1]),
                ..any()
            }
        )
        .await,
        ids[..1]
    );
    assert_eq!(
        found(
            &fixture,
            TaskFilter {
                created_before: Some(just_after(created[1])),
                ..any()
            }
        )
        .await,
        ids[..2]
    );
    let due = fixture.task(ids[1]).await.due_at;
    assert_eq!(
        found(
            &fixture,
            TaskFilter {
                due_after: Some(due),
                ..any()
            }
        )
        .await,
        ids[..2]
    );
    assert_eq!(
        found(
            &fixture,
            TaskFilter {
                due_before: Some(due),
                ..any()
            }
        )
        .await,
        ids[2..]
    );
    let between = TaskFilter {
        due_after: Some(due),
        due_before: Some(just_after(due)),
        ..any()
    };
    assert_eq!(found(&fixture, between).await, [ids[1]]);
}

async fn both_orders_run_along_the_ids(fixture: Arc<Fixture>) {
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
        "lists start with the newest unless told otherwise"
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

async fn pages_go_on_where_they_ended_while_tasks_come_and_end(fixture: Arc<Fixture>) {
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

async fn a_page_tells_where_the_next_one_starts_only_if_it_is_full(fixture: Arc<Fixture>) {
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

async fn a_page_of_nothing_or_too_much_is_refused(fixture: Arc<Fixture>) {
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

async fn attempts_are_listed_first_to_last_with_the_running_one(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    assert!(
        fixture.attempts(id).await.is_empty(),
        "before the first claim there is none"
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
        longhaul_domain::Attempt::told_by(&task).as_ref()
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

async fn those_ahead_of_a_task_are_counted_in_the_order_of_claims(fixture: Arc<Fixture>) {
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
                queue: "elsewhere".into(),
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
        let (task, now) = (
            fixture.task(ids[n]).await,
            fixture.store.now().await.unwrap(),
        );
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
