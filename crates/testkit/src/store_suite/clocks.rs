//! The store's clock: all decisions and all stored times follow it.

use std::sync::Arc;

use longhaul_domain::{
    NewTask, RunAt, Status, Timestamp,
    contract::store::{Access, ClaimNamed},
};

use super::{
    case::{Case, cases},
    support::{HOUR_MS, KIND, claim_request, completed, json, new_task, retryable},
};
use crate::{fixture::Fixture, names::queue_name};

pub(super) fn cases() -> Vec<Case> {
    cases![
        the_stores_time_follows_the_clock_and_never_goes_back,
        changes_are_dated_by_the_stores_clock,
        an_older_clock_reading_does_not_move_a_task_back,
        an_id_contains_the_time_of_submission,
        leases_follow_the_stores_clock,
        pauses_are_dated_by_the_stores_clock,
    ]
}

async fn now(fixture: &Fixture) -> Timestamp {
    fixture.store.now().await.unwrap()
}

async fn the_stores_time_follows_the_clock_and_never_goes_back(fixture: Arc<Fixture>) {
    let mut last = now(&fixture).await;
    for _ in 0..5 {
        let next = now(&fixture).await;
        assert!(next >= last);
        fixture.clock.advance_ms(HOUR_MS);
        let later = now(&fixture).await;
        assert!(
            later >= next.plus_ms(HOUR_MS),
            "{later:?} is an hour after {next:?}"
        );
        assert!(later < next.plus_ms(2 * HOUR_MS));

        last = later;
    }
}

/// Asserts that a time lies between two readings of the store's clock.
fn assert_between(before: Timestamp, at: Timestamp, after: Timestamp) {
    assert!(
        before <= at && at <= after,
        "{at:?} is not between {before:?} and {after:?}"
    );
}

async fn changes_are_dated_by_the_stores_clock(fixture: Arc<Fixture>) {
    fixture.clock.advance_ms(10 * HOUR_MS);
    let before = now(&fixture).await;
    let id = fixture.submit(new_task()).await;
    let task = fixture.task(id).await;
    assert_between(before, task.created_at, now(&fixture).await);
    assert_eq!(
        (task.due_at, task.updated_at),
        (task.created_at, task.created_at)
    );

    fixture.clock.advance_ms(HOUR_MS);
    let before = now(&fixture).await;
    let node = fixture.node().await;
    let lease = fixture.claim_this(node, id).await;
    let task = fixture.task(id).await;

    assert_between(before, task.started_at.unwrap(), now(&fixture).await);
    assert_eq!(
        (task.last_attempt_at, task.updated_at),
        (task.started_at, task.started_at.unwrap())
    );

    fixture.clock.advance_ms(HOUR_MS);
    let before = now(&fixture).await;
    fixture
        .store
        .save_progress(&[(lease, json("1"))])
        .await
        .unwrap();
    assert_between(
        before,
        fixture.task(id).await.updated_at,
        now(&fixture).await,
    );

    fixture.clock.advance_ms(HOUR_MS);
    let before = now(&fixture).await;
    fixture.finish(lease, retryable(HOUR_MS)).await;
    let task = fixture.task(id).await;
    assert_between(
        before.plus_ms(HOUR_MS),
        task.due_at,
        now(&fixture).await.plus_ms(HOUR_MS),
    );

    assert_between(before, task.error.unwrap().at, now(&fixture).await);

    fixture.clock.advance_ms(HOUR_MS);
    let before = now(&fixture).await;
    fixture.run(id, completed()).await;
    let task = fixture.task(id).await;
    assert_between(before, task.finished_at.unwrap(), now(&fixture).await);
    assert!(
        task.last_attempt_at > task.started_at,
        "the row has the first start and the last attempt"
    );
}

/// A statement reads the clock when it begins and may see rows that were written later. The same
/// happens after the clock was set back.
async fn an_older_clock_reading_does_not_move_a_task_back(fixture: Arc<Fixture>) {
    let node = fixture.node().await;
    let due = RunAt::At(now(&fixture).await);
    let new = |queue: &str| NewTask {
        run_at: due,
        queue: queue_name(queue),
        ..new_task()
    };

    fixture.clock.advance_ms(2 * HOUR_MS);
    let early = fixture.submit(new("lane")).await;
    let named = fixture.submit(new("named")).await;
    let submitted = [fixture.task(early).await, fixture.task(named).await];

    fixture.clock.turn_back_ms(HOUR_MS / 2);
    let late = fixture.submit(new("lane")).await;
    let request = claim_request(node, &["lane"], &[KIND], 2);
    let mut claimed = fixture.store.claim_tasks(&request).await.unwrap();
    let host = request.host;
    let task_types = request.task_types;
    let by_name = ClaimNamed {
        node_id: node,
        host,
        task_types,
        ids: vec![named],
    };

    claimed.extend(fixture.store.claim_named(&by_name).await.unwrap());
    assert_eq!(claimed.len(), 3);
    for task in &claimed {
        assert_eq!(*task, fixture.task(task.id).await, "the answer is the row");
    }

    for before in submitted {
        let task = fixture.task(before.id).await;
        let dates = [task.started_at, task.last_attempt_at, Some(task.updated_at)];
        assert!(
            dates.iter().all(|at| *at >= Some(before.created_at)),
            "{dates:?} begin at {:?}",
            before.created_at
        );
    }

    let of_late = fixture.task(late).await;
    assert!(
        of_late.last_attempt_at <= Some(now(&fixture).await),
        "each change has its own time"
    );

    fixture.clock.turn_back_ms(HOUR_MS / 2);
    let before = fixture.task(early).await;
    let lease = before.lease().unwrap();
    fixture
        .store
        .save_progress(&[(lease, json("1"))])
        .await
        .unwrap();
    fixture
        .store
        .save_checkpoint(&lease, &json("2"))
        .await
        .unwrap();

    assert_eq!(fixture.task(early).await.updated_at, before.updated_at);
    for lease in [lease, of_late.lease().unwrap()] {
        fixture.finish(lease, completed()).await;
        let task = fixture.task(lease.task_id).await;
        let dates = [task.finished_at, Some(task.updated_at)];
        assert!(
            dates.iter().all(|at| *at == task.last_attempt_at),
            "{dates:?} are {:?}",
            task.last_attempt_at
        );
    }
}

async fn an_id_contains_the_time_of_submission(fixture: Arc<Fixture>) {
    let first = fixture.submit(new_task()).await;
    fixture.clock.advance_ms(1_000 * HOUR_MS);
    let second = fixture.submit(new_task()).await;
    let millis_of = |id: longhaul_domain::TaskId| (id.0.as_u128() >> 80) as u64;
    assert!(millis_of(second) - millis_of(first) >= 1_000 * HOUR_MS);
    let created = fixture.task(second).await.created_at.as_micros() / 1_000;

    assert!(
        millis_of(second).abs_diff(created as u64) < HOUR_MS,
        "the event has the time of the row"
    );
}

async fn leases_follow_the_stores_clock(fixture: Arc<Fixture>) {
    fixture.clock.advance_ms(HOUR_MS);
    let before = now(&fixture).await;
    let node = fixture.node().await;
    let listed = fixture.store.list_nodes().await.unwrap()[0].clone();
    assert_between(before, listed.started_at, now(&fixture).await);
    fixture.clock.advance_ms(HOUR_MS);
    let before = now(&fixture).await;

    fixture.store.heartbeat_node(node, &[]).await.unwrap();
    assert_between(
        before,
        fixture.store.list_nodes().await.unwrap()[0].heartbeat_at,
        now(&fixture).await,
    );
    fixture.clock.advance_ms(HOUR_MS);
    let before = now(&fixture).await;

    fixture.rescue(5).await;
    let lost = fixture.store.list_nodes().await.unwrap()[0]
        .lost_at
        .expect("a node is dead after an hour without heartbeat");
    assert_between(before, lost, now(&fixture).await);
    fixture.clock.advance_ms(HOUR_MS);
    fixture.rescue(5).await;
    fixture
        .store
        .declare_others_dead(super::support::random_node_id())
        .await
        .unwrap();

    let again = fixture.store.list_nodes().await.unwrap()[0].lost_at;
    assert_eq!(again, Some(lost), "who is dead was not lost later");
}

async fn pauses_are_dated_by_the_stores_clock(fixture: Arc<Fixture>) {
    fixture.clock.advance_ms(HOUR_MS);
    let before = now(&fixture).await;
    fixture
        .store
        .pause_queue(&queue_name("lane"))
        .await
        .unwrap();
    let paused = fixture.store.list_queues().await.unwrap()[0]
        .paused_at
        .expect("the queue is paused");

    assert_between(before, paused, now(&fixture).await);
    let id = fixture
        .submit(NewTask {
            queue: queue_name("other"),
            ..new_task()
        })
        .await;

    fixture.store.cancel_task(&Access::All, id).await.unwrap();
    assert_eq!(fixture.status(id).await, Status::Cancelled);
}
