//! The outbox: messages are written with the change, leased to a relay, and removed when confirmed.

use std::sync::Arc;

use longhaul_domain::{
    NewTask, Status, TaskId,
    contract::store::{Access, RetryScope},
    event::{EventKind, LeasedMessage, OutboxPolicy, Topic},
    event::{EventRule, EventSelection},
    lifecycle::reschedule::Reschedule,
};

use super::{
    case::{Case, cases},
    support::{
        HOUR_MS, MANY, QUEUE, completed, failure, fatal, json, new_task, retryable, snoozed,
    },
};
use crate::fixture::Fixture;

/// Every event and nothing else.
fn events() -> OutboxPolicy {
    OutboxPolicy {
        events: EventSelection::everything(),
        dead_letters: false,
    }
}

/// The ends of one type and the starts of all types.
fn some_events() -> OutboxPolicy {
    let rule = |types: &[&str], events: &[EventKind]| EventRule {
        task_types: types.iter().map(|name| (*name).to_owned()).collect(),
        events: events.to_vec(),
    };
    let rules = [
        rule(&["selected"], &[EventKind::Submitted, EventKind::Completed]),
        rule(&[], &[EventKind::Started]),
    ];

    OutboxPolicy {
        events: EventSelection::new(&rules).expect("the rules are valid"),
        dead_letters: false,
    }
}

pub(super) fn cases() -> Vec<Case> {
    let with = |cases: Vec<Case>, policy: OutboxPolicy| {
        cases
            .into_iter()
            .map(move |case| case.with_outbox(policy.clone()))
    };
    let mut all = cases![a_store_without_a_relay_writes_no_messages];

    all.extend(with(
        cases![only_dead_letters_are_published],
        OutboxPolicy {
            events: EventSelection::default(),
            dead_letters: true,
        },
    ));

    all.extend(with(
        cases![only_selected_events_are_published],
        some_events(),
    ));

    all.extend(with(
        cases![
            every_change_of_state_is_an_event,
            a_message_tells_what_the_task_was_at_the_change,
            a_tree_that_is_cancelled_tells_of_each_task_once,
            a_parents_end_is_published_after_its_last_childs,
            refused_and_silent_changes_are_no_events,
        ],
        events(),
    ));

    all.extend(with(
        cases![
            messages_are_handed_out_in_order_and_to_one_at_a_time,
            an_unconfirmed_message_is_handed_out_again,
            a_confirmed_message_is_gone,
            messages_are_counted_up_to_a_limit,
            a_dead_letter_is_an_event_as_well,
        ],
        OutboxPolicy::everything(),
    ));

    all
}

fn summary(messages: &[LeasedMessage]) -> Vec<(TaskId, Topic, EventKind, Status)> {
    let tell = |leased: &LeasedMessage| {
        let message = &leased.message;
        (
            message.task_id,
            message.topic,
            message.body.event,
            message.body.status,
        )
    };

    messages.iter().map(tell).collect()
}

fn events_of(messages: &[LeasedMessage]) -> Vec<EventKind> {
    messages
        .iter()
        .map(|leased| leased.message.body.event)
        .collect()
}

async fn a_store_without_a_relay_writes_no_messages(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    fixture.run(id, completed()).await;
    assert!(fixture.drain_outbox().await.is_empty());
}

async fn only_dead_letters_are_published(fixture: Arc<Fixture>) {
    let failed = fixture.submit(new_task()).await;
    fixture.run(failed, retryable(0)).await;
    fixture.run(failed, fatal()).await;
    let used_up = fixture
        .submit(NewTask {
            max_attempts: 1,
            ..new_task()
        })
        .await;

    fixture.run(used_up, retryable(0)).await;
    let good = fixture.submit(new_task()).await;
    fixture.run(good, completed()).await;
    let unreachable = fixture.submit(new_task()).await;
    fixture
        .store
        .fail_waiting(&[unreachable], &failure("no way there"))
        .await
        .unwrap();

    let parent = fixture.start(new_task()).await;
    let child = fixture.submit_children(parent, vec![new_task()]).await[0];
    fixture.finish(parent, completed()).await;
    fixture.run(child, fatal()).await;
    let dead = |id, event, status| (id, Topic::DeadLetter, event, status);
    let expected = [
        dead(failed, EventKind::Failed, Status::Failed),
        dead(used_up, EventKind::DeadLettered, Status::DeadLetter),
        dead(unreachable, EventKind::Failed, Status::Failed),
        dead(child, EventKind::Failed, Status::Failed),
        dead(parent.task_id, EventKind::Failed, Status::Failed),
    ];

    let messages = fixture.drain_outbox().await;
    assert_eq!(summary(&messages), expected);
    assert_eq!(
        messages[0].message.body.error.as_deref(),
        Some("it broke for good")
    );
}

async fn only_selected_events_are_published(fixture: Arc<Fixture>) {
    let named = |name: &str| NewTask {
        task_type: name.into(),
        ..new_task()
    };
    let selected = fixture.submit(named("selected")).await;
    let other = fixture.submit(named("other")).await;
    let batch = fixture
        .submit_all(vec![named("other"), named("selected")])
        .await;

    fixture.run(selected, completed()).await;
    fixture.run(other, completed()).await;
    fixture.run(batch[1], fatal()).await;
    let event = |id, event, status| (id, Topic::Event, event, status);

    let expected = [
        event(selected, EventKind::Submitted, Status::Queued),
        event(batch[1], EventKind::Submitted, Status::Queued),
        event(selected, EventKind::Started, Status::Running),
        event(selected, EventKind::Completed, Status::Completed),
        event(other, EventKind::Started, Status::Running),
        event(batch[1], EventKind::Started, Status::Running),
    ];

    assert_eq!(summary(&fixture.drain_outbox().await), expected);
}

async fn a_dead_letter_is_an_event_as_well(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    fixture.drain_outbox().await;
    fixture.finish(lease, fatal()).await;
    let messages = fixture.drain_outbox().await;
    let topics: Vec<Topic> = messages.iter().map(|leased| leased.message.topic).collect();

    assert_eq!(topics, [Topic::Event, Topic::DeadLetter]);
    let task = fixture.task(lease.task_id).await;
    for leased in &messages {
        let message = &leased.message;
        let body = &leased.message.body;
        assert_eq!(
            message.event_id(),
            format!("{}-{}-failed", task.id, task.version)
        );
        assert_eq!(body.occurred_at, task.finished_at.unwrap().as_micros());
        assert_eq!(
            (body.error.as_deref(), body.error_class.as_deref()),
            (Some("it broke for good"), Some("test"))
        );
    }
}

async fn every_change_of_state_is_an_event(fixture: Arc<Fixture>) {
    let id = fixture
        .submit(NewTask {
            max_attempts: 2,
            ..new_task()
        })
        .await;

    fixture.run(id, snoozed(0)).await;
    fixture.run(id, retryable(0)).await;
    let change = Reschedule {
        priority: Some(2),
        ..Reschedule::default()
    };

    fixture
        .store
        .reschedule_task(&Access::All, id, &change)
        .await
        .unwrap();
    fixture.run(id, retryable(0)).await;
    fixture
        .store
        .retry_task(&Access::All, id, RetryScope::Task)
        .await
        .unwrap();

    let node = fixture.node().await;
    fixture.claim_this(node, id).await;
    fixture.store.retire_node(node).await.unwrap();
    fixture.rescue(5).await;
    fixture.store.cancel_task(&Access::All, id).await.unwrap();
    let messages = fixture.drain_outbox().await;

    use EventKind::{Cancelled, DeadLettered, Requeued, Rescheduled, Retrying, Started, Submitted};

    let expected = [
        Submitted,
        Started,
        Retrying,
        Started,
        Retrying,
        Rescheduled,
        Started,
        DeadLettered,
        Requeued,
        Started,
        Requeued,
        Cancelled,
    ];

    assert_eq!(events_of(&messages), expected);
    let versions: Vec<u64> = messages
        .iter()
        .map(|leased| leased.message.body.version)
        .collect();

    assert_eq!(
        versions,
        Vec::from_iter(1..=12),
        "each event has the version of its change"
    );
}

async fn a_message_tells_what_the_task_was_at_the_change(fixture: Arc<Fixture>) {
    let new = NewTask {
        priority: 6,
        correlation_id: Some("corr 'é'".to_owned()),
        trace_context: Some("00-trace-01".to_owned()),
        ..new_task()
    };
    let id = fixture.submit(new).await;
    let submitted = fixture.task(id).await;
    let node = fixture.node().await;
    let lease = fixture.claim_this(node, id).await;
    let started = fixture.task(id).await;
    fixture.finish(lease, retryable(HOUR_MS)).await;
    let retrying = fixture.task(id).await;
    let expected = [
        events().messages(&submitted, EventKind::Submitted),
        events().messages(&started, EventKind::Started),
        events().messages(&retrying, EventKind::Retrying),
    ]
    .concat();
    let messages: Vec<_> = fixture
        .drain_outbox()
        .await
        .into_iter()
        .map(|leased| leased.message)
        .collect();
    assert_eq!(messages, expected);
}

async fn a_tree_that_is_cancelled_tells_of_each_task_once(fixture: Arc<Fixture>) {
    let level = |name: &str| NewTask {
        task_type: name.into(),
        ..new_task()
    };
    let root = fixture.start(level("root")).await;
    let middles = fixture
        .submit_children(root, vec![level("middle"); 2])
        .await;
    let node = fixture.node().await;

    let middle = fixture.claim_this(node, middles[0]).await;
    fixture
        .submit_children(middle, vec![level("leaf"); 2])
        .await;
    fixture.finish(root, completed()).await;
    fixture.drain_outbox().await;
    fixture
        .store
        .cancel_task(&Access::All, root.task_id)
        .await
        .unwrap();

    let messages = fixture.drain_outbox().await;
    assert!(
        events_of(&messages)
            .iter()
            .all(|event| *event == EventKind::Cancelled)
    );
    let kinds: Vec<&str> = messages
        .iter()
        .map(|leased| leased.message.body.task_type.as_str())
        .collect();

    assert_eq!(
        kinds,
        ["leaf", "leaf", "middle", "middle", "root"],
        "each task once, the deepest first"
    );
    let mut ids: Vec<TaskId> = messages
        .iter()
        .map(|leased| leased.message.task_id)
        .collect();

    ids.sort_unstable();
    let all: Vec<TaskId> = fixture
        .all_tasks()
        .await
        .iter()
        .map(|task| task.id)
        .collect();

    assert_eq!(ids, all);
}

async fn a_parents_end_is_published_after_its_last_childs(fixture: Arc<Fixture>) {
    let parent = fixture.start(new_task()).await;
    let child = fixture.submit_children(parent, vec![new_task()]).await[0];
    fixture.finish(parent, completed()).await;
    fixture.run(child, completed()).await;
    let messages = summary(&fixture.drain_outbox().await);
    let ends: Vec<TaskId> = messages
        .iter()
        .filter(|(_, _, event, _)| *event == EventKind::Completed)
        .map(|(id, ..)| *id)
        .collect();

    assert_eq!(ends, [child, parent.task_id]);
}

async fn refused_and_silent_changes_are_no_events(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    fixture.drain_outbox().await;
    fixture
        .store
        .save_progress(&[(lease, json("5"))])
        .await
        .unwrap();
    fixture
        .store
        .save_checkpoint(&lease, &json("5"))
        .await
        .unwrap();

    fixture
        .finish(super::support::forged(&lease), completed())
        .await;
    assert!(
        fixture
            .store
            .retry_task(&Access::All, lease.task_id, RetryScope::Task)
            .await
            .is_err()
    );

    assert!(fixture.drain_outbox().await.is_empty());
    fixture.finish(lease, completed()).await;
    fixture.finish(lease, completed()).await;
    fixture
        .store
        .cancel_task(&Access::All, lease.task_id)
        .await
        .unwrap();
    assert_eq!(
        events_of(&fixture.drain_outbox().await),
        [EventKind::Completed]
    );
}

async fn messages_are_handed_out_in_order_and_to_one_at_a_time(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 3]).await;
    let first = fixture.store.lease_outbox(2, HOUR_MS).await.unwrap();
    let second = fixture.store.lease_outbox(MANY, HOUR_MS).await.unwrap();
    assert_eq!((first.len(), second.len()), (2, 1));

    assert!(
        fixture
            .store
            .lease_outbox(MANY, HOUR_MS)
            .await
            .unwrap()
            .is_empty()
    );

    let all = [first, second].concat();
    assert!(all.windows(2).all(|pair| pair[0].id < pair[1].id));
    assert!(
        all.iter()
            .all(|leased| leased.tries == 1 && leased.message.body.queue == QUEUE)
    );
    let order: Vec<(TaskId, Topic)> = all
        .iter()
        .map(|leased| (leased.message.task_id, leased.message.topic))
        .collect();

    let expected: Vec<(TaskId, Topic)> = ids.iter().map(|id| (*id, Topic::Event)).collect();
    assert_eq!(order, expected);
}

async fn an_unconfirmed_message_is_handed_out_again(fixture: Arc<Fixture>) {
    fixture.submit(new_task()).await;
    let first = fixture.store.lease_outbox(MANY, HOUR_MS).await.unwrap();
    fixture.clock.advance_ms(HOUR_MS / 2);

    assert!(
        fixture
            .store
            .lease_outbox(MANY, HOUR_MS)
            .await
            .unwrap()
            .is_empty()
    );

    fixture.clock.advance_ms(HOUR_MS / 2);
    let again = fixture.store.lease_outbox(MANY, HOUR_MS).await.unwrap();
    let expected: Vec<LeasedMessage> = first
        .into_iter()
        .map(|leased| LeasedMessage { tries: 2, ..leased })
        .collect();

    assert_eq!(again, expected);
}

async fn a_confirmed_message_is_gone(fixture: Arc<Fixture>) {
    fixture.submit_all(vec![new_task(); 2]).await;
    let leased = fixture.store.lease_outbox(MANY, HOUR_MS).await.unwrap();
    fixture.store.confirm_outbox(&[leased[0].id]).await.unwrap();
    fixture
        .store
        .confirm_outbox(&[leased[0].id, i64::MAX])
        .await
        .expect("a confirmed message may be confirmed again");
    fixture.store.confirm_outbox(&[]).await.unwrap();

    fixture.clock.advance_ms(HOUR_MS);
    let left = fixture.store.lease_outbox(MANY, HOUR_MS).await.unwrap();
    assert_eq!(
        left.iter().map(|message| message.id).collect::<Vec<_>>(),
        [leased[1].id]
    );
}

async fn messages_are_counted_up_to_a_limit(fixture: Arc<Fixture>) {
    assert_eq!(fixture.store.count_outbox(10).await.unwrap(), 0);
    fixture.submit_all(vec![new_task(); 3]).await;
    let waiting = fixture.store.count_outbox(MANY).await.unwrap();
    assert!(waiting >= 3, "{waiting}");
    assert_eq!(fixture.store.count_outbox(2).await.unwrap(), 2);
    let leased = fixture.store.lease_outbox(1, HOUR_MS).await.unwrap();

    assert_eq!(
        fixture.store.count_outbox(MANY).await.unwrap(),
        waiting,
        "leased messages are counted too"
    );
    fixture.store.confirm_outbox(&[leased[0].id]).await.unwrap();
    assert_eq!(fixture.store.count_outbox(MANY).await.unwrap(), waiting - 1);
}
