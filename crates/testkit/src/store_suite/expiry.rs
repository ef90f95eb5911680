//! Expiry: deadlines, silent attempts and attempts past their timeout.

use std::sync::Arc;

use longhaul_domain::{
    AttemptEndKind, NewTask, RetryPolicy, RunAt, Status, TaskId, TaskRecord, bounds,
    contract::store::{Access, RetryScope, Verdict},
    lifecycle::expire::Overdue,
};

use super::{
    case::{Case, cases},
    support::{HOUR_MS, MANY, completed, json, new_task, retryable},
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_waiting_task_past_its_deadline_fails,
        a_task_before_its_deadline_does_not_change,
        a_running_task_past_its_deadline_is_taken_from_its_node,
        the_most_overdue_deadlines_are_expired_first,
        a_child_past_its_deadline_counts_as_ended_for_its_parent,
        a_waiting_parent_past_its_deadline_fails,
        a_silent_attempt_is_failed_and_retried,
        a_heartbeat_or_progress_protects_an_attempt,
        an_attempt_past_its_timeout_and_grace_fails_despite_progress,
        a_hung_attempt_uses_up_retries,
        hung_attempts_are_expired_within_the_limit,
    ]
}

const NEVER_MS: u64 = bounds::DURATION_MS;
const SILENT: Overdue = Overdue {
    silent_ms: HOUR_MS,
    timeout_grace_ms: NEVER_MS,
};

async fn expire(fixture: &Fixture, overdue: Overdue) -> usize {
    fixture
        .store
        .expire_tasks(&overdue, MANY)
        .await
        .expect("the request is valid")
        .ended
}

async fn due_in(fixture: &Fixture, ms: u64) -> NewTask {
    let deadline_at = Some(fixture.store.now().await.unwrap().plus_ms(ms));
    NewTask {
        deadline_at,
        ..new_task()
    }
}

fn assert_deadline_passed(task: &TaskRecord) {
    assert_eq!(
        (task.status, task.error.as_ref().unwrap().class.as_str()),
        (Status::Failed, "deadline")
    );
    assert_eq!(
        task.retry_count, 0,
        "it is not retried, and no attempt is charged"
    );
}

async fn a_waiting_task_past_its_deadline_fails(fixture: Arc<Fixture>) {
    let dated = due_in(&fixture, HOUR_MS).await;
    let retrying = fixture.start(dated.clone()).await;
    fixture.finish(retrying, retryable(10 * HOUR_MS)).await;
    let queued = fixture.submit(dated.clone()).await;
    let delayed = fixture
        .submit(NewTask {
            run_at: RunAt::AfterMs(5 * HOUR_MS),
            ..dated
        })
        .await;

    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.expire_deadlines().await, 3);
    for id in [retrying.task_id, queued, delayed] {
        let task = fixture.task(id).await;
        assert_eq!(task.error.as_ref().unwrap().class, "deadline");
        assert_eq!(task.status, Status::Failed);
    }

    assert_eq!(fixture.attempts(queued).await, [], "no attempt is made up");
    let attempts = fixture.attempts(retrying.task_id).await;
    assert_eq!(
        (attempts.len(), attempts[0].end),
        (1, AttemptEndKind::Failed),
        "the history does not change"
    );
    assert_eq!(fixture.expire_deadlines().await, 0, "once is enough");
}

async fn a_task_before_its_deadline_does_not_change(fixture: Arc<Fixture>) {
    let dated = due_in(&fixture, HOUR_MS).await;
    let early = fixture.submit(dated.clone()).await;
    let done = fixture
        .submit(NewTask {
            priority: 9,
            ..dated
        })
        .await;

    fixture.submit(new_task()).await;
    fixture.run(done, completed()).await;
    fixture.clock.advance_ms(HOUR_MS / 2);
    assert_eq!(fixture.expire_deadlines().await, 0);
    assert_eq!(fixture.status(early).await, Status::Queued);
    fixture.clock.advance_ms(HOUR_MS / 2);
    assert_eq!(
        fixture.expire_deadlines().await,
        1,
        "ended tasks and those without deadline do not change"
    );
}

async fn a_running_task_past_its_deadline_is_taken_from_its_node(fixture: Arc<Fixture>) {
    let dated = due_in(&fixture, HOUR_MS).await;
    let lease = fixture.start(dated).await;
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.expire_deadlines().await, 1);
    assert_deadline_passed(&fixture.task(lease.task_id).await);
    assert_eq!(
        fixture.attempts(lease.task_id).await[0].end,
        AttemptEndKind::TimedOut
    );

    assert_eq!(
        fixture.finish(lease, completed()).await,
        Verdict::Stale(Status::Failed),
        "a late result is refused"
    );
}

async fn the_most_overdue_deadlines_are_expired_first(fixture: Arc<Fixture>) {
    let mut ids: Vec<TaskId> = Vec::new();
    for hours in [3, 1, 2] {
        ids.push(
            fixture
                .submit(due_in(&fixture, hours * HOUR_MS).await)
                .await,
        );
    }

    fixture.clock.advance_ms(4 * HOUR_MS);
    let overdue = Overdue {
        silent_ms: NEVER_MS,
        timeout_grace_ms: NEVER_MS,
    };

    for index in [1, 2, 0] {
        assert_eq!(
            fixture.store.expire_tasks(&overdue, 1).await.unwrap().ended,
            1
        );
        assert_deadline_passed(&fixture.task(ids[index]).await);
    }
}

async fn a_child_past_its_deadline_counts_as_ended_for_its_parent(fixture: Arc<Fixture>) {
    let parent = fixture.start(new_task()).await;
    let child = fixture
        .submit_children(parent, vec![due_in(&fixture, HOUR_MS).await])
        .await[0];
    fixture.finish(parent, completed()).await;
    fixture.clock.advance_ms(HOUR_MS);
    let never = Overdue {
        silent_ms: NEVER_MS,
        timeout_grace_ms: NEVER_MS,
    };

    let expired = fixture.store.expire_tasks(&never, MANY).await.unwrap();
    assert_eq!(expired.ended, 1, "the parent's end is not a deadline's");
    let moved: Vec<_> = expired
        .moved
        .iter()
        .map(|one| (one.task.id, one.was, one.task.status))
        .collect();
    let ends = [
        (parent.task_id, Status::Waiting, Status::Failed),
        (child, Status::Queued, Status::Failed),
    ];

    assert_eq!(moved, ends, "both ends are returned");
    let task = fixture.task(parent.task_id).await;
    assert_eq!(
        (task.status, task.error.unwrap().class.as_str()),
        (Status::Failed, "children")
    );
}

async fn a_waiting_parent_past_its_deadline_fails(fixture: Arc<Fixture>) {
    let parent = fixture.start(due_in(&fixture, HOUR_MS).await).await;
    let child = fixture.submit_children(parent, vec![new_task()]).await[0];
    fixture.finish(parent, completed()).await;
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.expire_deadlines().await, 1);
    assert_deadline_passed(&fixture.task(parent.task_id).await);
    fixture.run(child, completed()).await;
    let task = fixture.task(parent.task_id).await;

    assert_eq!(
        (task.status, task.children.completed),
        (Status::Failed, 1),
        "an ended parent only updates its counters"
    );
}

async fn a_silent_attempt_is_failed_and_retried(fixture: Arc<Fixture>) {
    let retry = RetryPolicy {
        initial_ms: 60_000,
        jitter: 0.5,
        ..RetryPolicy::default()
    };
    let lease = fixture
        .start(NewTask {
            retry,
            ..new_task()
        })
        .await;

    fixture.submit(new_task()).await;
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(
        expire(&fixture, SILENT).await,
        1,
        "only a running attempt can be silent"
    );
    let task = fixture.task(lease.task_id).await;

    assert_eq!((task.status, task.retry_count), (Status::Retrying, 1));
    assert_eq!(task.error.as_ref().unwrap().class, "timeout");
    let wait_ms = task.due_at.micros_since(task.updated_at) / 1_000;
    assert!(
        (30_000..=90_000).contains(&wait_ms),
        "the delay follows the task's policy with jitter: {wait_ms} ms"
    );
    assert_eq!(
        fixture.attempts(lease.task_id).await[0].end,
        AttemptEndKind::TimedOut
    );

    assert_eq!(
        fixture.finish(lease, completed()).await,
        Verdict::Stale(Status::Retrying)
    );
}

async fn a_heartbeat_or_progress_protects_an_attempt(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    fixture.clock.advance_ms(HOUR_MS / 2);
    fixture
        .store
        .save_progress(&[(lease, json("1"))])
        .await
        .unwrap();
    fixture.clock.advance_ms(HOUR_MS / 2);
    assert_eq!(expire(&fixture, SILENT).await, 0);

    fixture
        .store
        .save_checkpoint(&lease, &json("1"))
        .await
        .unwrap();
    fixture.clock.advance_ms(HOUR_MS / 2);
    assert_eq!(expire(&fixture, SILENT).await, 0);
    fixture.clock.advance_ms(HOUR_MS / 2);
    assert_eq!(expire(&fixture, SILENT).await, 1);
}

async fn an_attempt_past_its_timeout_and_grace_fails_despite_progress(fixture: Arc<Fixture>) {
    let lease = fixture
        .start(NewTask {
            timeout_ms: Some(HOUR_MS),
            ..new_task()
        })
        .await;

    let unbounded = fixture.start(new_task()).await;
    let overdue = Overdue {
        silent_ms: NEVER_MS,
        timeout_grace_ms: HOUR_MS / 2,
    };

    fixture.clock.advance_ms(HOUR_MS);
    fixture
        .store
        .save_progress(&[(lease, json("99"))])
        .await
        .unwrap();
    assert_eq!(
        expire(&fixture, overdue).await,
        0,
        "its node gets a grace period"
    );

    fixture.clock.advance_ms(HOUR_MS / 2);
    assert_eq!(expire(&fixture, overdue).await, 1);
    assert_eq!(fixture.status(lease.task_id).await, Status::Retrying);
    assert_eq!(
        fixture.status(unbounded.task_id).await,
        Status::Running,
        "without a timeout it keeps running"
    );
}

async fn a_hung_attempt_uses_up_retries(fixture: Arc<Fixture>) {
    let lease = fixture
        .start(NewTask {
            max_attempts: 1,
            ..new_task()
        })
        .await;

    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(expire(&fixture, SILENT).await, 1);
    let task = fixture.task(lease.task_id).await;
    assert_eq!((task.status, task.retry_count), (Status::DeadLetter, 1));
    let attempts = fixture.attempts(lease.task_id).await;

    assert_eq!(attempts[0].end, AttemptEndKind::TimedOut);
    fixture
        .store
        .retry_task(&Access::All, lease.task_id, RetryScope::Task)
        .await
        .unwrap();
    assert_eq!(
        fixture.attempts(lease.task_id).await,
        attempts,
        "a retry does not change the history"
    );
}

async fn hung_attempts_are_expired_within_the_limit(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 5]).await;
    let node = fixture.node().await;
    fixture.claim(node, MANY).await;
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(
        fixture.store.expire_tasks(&SILENT, 2).await.unwrap().ended,
        2
    );
    let moved: Vec<bool> = fixture
        .all_tasks()
        .await
        .iter()
        .map(|task| task.status == Status::Retrying)
        .collect();

    assert_eq!(moved, [true, true, false, false, false], "older ones first");
    assert_eq!(
        fixture
            .store
            .expire_tasks(&SILENT, MANY)
            .await
            .unwrap()
            .ended,
        ids.len() - 2
    );
}
