//! Ends of attempts: every outcome with its counters, history and error, exactly once.

use std::sync::Arc;

use longhaul_domain::{
    AttemptEndKind, NewTask, RunAt, Status, TaskId, TaskRecord,
    contract::store::{Access, AttemptEnd, AttemptReport, Verdict},
    lifecycle,
};

use super::{
    case::{Case, cases},
    support::{
        HOUR_MS, MANY, completed, failure, fatal, ids_of, json, lease_of, new_task, random_uuid,
        retryable, snoozed,
    },
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_completed_task_has_its_result,
        a_result_may_be_absent_or_a_url,
        each_of_many_tasks_has_its_own_result,
        a_large_result_among_many_is_stored,
        a_fatal_failure_ends_the_task_with_its_error,
        a_failure_waits_for_its_retry_and_is_charged,
        a_task_without_attempts_left_is_a_dead_letter_with_its_history,
        a_snooze_is_not_charged,
        a_hand_back_is_not_charged_and_does_not_move_the_task,
        a_handler_can_cancel_its_own_task,
        every_outcome_matches_the_domains_decision,
        a_repeated_report_is_recognised,
        a_repeated_report_is_recognised_inside_one_batch,
        a_second_report_with_another_outcome_changes_nothing,
        one_bad_report_does_not_affect_its_batch,
        a_report_on_an_unknown_task_is_answered_as_missing,
        an_empty_batch_of_reports_is_accepted,
        long_error_texts_are_cut,
        a_success_after_failures_has_no_error_but_a_history,
    ]
}

async fn a_completed_task_has_its_result(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    assert_eq!(
        fixture.finish(lease, completed()).await,
        Verdict::Applied(Status::Completed)
    );
    let task = fixture.task(lease.task_id).await;

    assert_eq!(task.result, Some(json("{\"done\":true}")));
    assert_eq!(
        (task.retry_count, task.snooze_count, task.crash_count),
        (0, 0, 0)
    );
    let attempts = fixture.attempts(lease.task_id).await;

    assert_eq!(
        (attempts.len(), attempts[0].end),
        (1, AttemptEndKind::Completed)
    );
    assert_eq!(
        (attempts[0].started_at, attempts[0].ended_at),
        (task.last_attempt_at, task.finished_at)
    );
}

async fn a_result_may_be_absent_or_a_url(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    fixture
        .finish(
            lease,
            AttemptEnd::Completed {
                result: None,
                result_url: None,
            },
        )
        .await;

    let task = fixture.task(lease.task_id).await;
    assert_eq!(
        (task.status, task.result, task.result_url),
        (Status::Completed, None, None)
    );
    let lease = fixture.start(new_task()).await;
    let url = "https://files.example/a?b=c#d".to_owned();

    fixture
        .finish(
            lease,
            AttemptEnd::Completed {
                result: Some(json("null")),
                result_url: Some(url.clone()),
            },
        )
        .await;

    let task = fixture.task(lease.task_id).await;
    assert_eq!(
        (task.result, task.result_url),
        (Some(json("null")), Some(url)),
        "a null is a result"
    );
}

/// Enough tasks for several statements on databases without arrays, in another order than they were
/// claimed.
async fn each_of_many_tasks_has_its_own_result(fixture: Arc<Fixture>) {
    fixture.submit_all(vec![new_task(); 333]).await;
    let node = fixture.node().await;
    let claimed = fixture.claim(node, 333).await;
    assert_eq!(claimed.len(), 333);

    let outcome = |number: usize| match number % 7 {
        0 => AttemptEnd::Completed {
            result: None,
            result_url: None,
        },
        1 => AttemptEnd::Completed {
            result: Some(json(&number.to_string())),
            result_url: Some(format!("file:{number}")),
        },
        _ => AttemptEnd::Completed {
            result: Some(json(&number.to_string())),
            result_url: None,
        },
    };

    let report = |(number, task)| AttemptReport {
        lease: lease_of(task),
        end: outcome(number),
    };
    let mut reports: Vec<AttemptReport> = claimed.iter().enumerate().map(report).collect();

    reports.reverse();
    let verdicts = fixture.store.finish_tasks(&reports).await.unwrap();
    assert_eq!(verdicts, vec![Verdict::Applied(Status::Completed); 333]);

    for report in reports {
        let task = fixture.task(report.lease.task_id).await;
        let AttemptEnd::Completed { result, result_url } = report.end else {
            unreachable!()
        };
        assert_eq!(
            (task.status, task.result, task.result_url),
            (Status::Completed, result, result_url)
        );
        assert_eq!(
            (task.attempt, task.lease_token),
            (1, Some(report.lease.token))
        );
    }
}

/// Each of them is the last once, to cover the padding of a statement's list.
async fn a_large_result_among_many_is_stored(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 129]).await;
    let node = fixture.node().await;
    let claimed = fixture.claim(node, 129).await;
    let large = json(&format!(
        "[{}]",
        vec![format!("\"{}\"", "x".repeat(60_000)); 4].join(",")
    ));
    let last = ids[128];

    let report = |task: &TaskRecord| {
        let result = Some(if task.id == last {
            large.clone()
        } else {
            json("1")
        });

        AttemptReport {
            lease: lease_of(task),
            end: AttemptEnd::Completed {
                result,
                result_url: None,
            },
        }
    };

    let reports: Vec<AttemptReport> = claimed.iter().map(report).collect();
    let verdicts = fixture.store.finish_tasks(&reports).await.unwrap();
    assert_eq!(verdicts, vec![Verdict::Applied(Status::Completed); 129]);
    assert_eq!(fixture.task(last).await.result, Some(large));
}

async fn a_fatal_failure_ends_the_task_with_its_error(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    assert_eq!(
        fixture.finish(lease, fatal()).await,
        Verdict::Applied(Status::Failed)
    );
    let task = fixture.task(lease.task_id).await;
    let error = task.error.clone().unwrap();

    assert_eq!(
        error,
        failure("it broke for good").at(task.finished_at.unwrap(), 1)
    );
    assert_eq!(task.retry_count, 0, "what no retry mends is not charged");
    assert_eq!(fixture.attempts(lease.task_id).await[0].error, Some(error));
}

async fn a_failure_waits_for_its_retry_and_is_charged(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    assert_eq!(
        fixture.finish(lease, retryable(90_000)).await,
        Verdict::Applied(Status::Retrying)
    );
    let task = fixture.task(lease.task_id).await;

    assert_eq!(
        (task.retry_count, task.due_at),
        (1, task.updated_at.plus_ms(90_000))
    );
    assert_eq!(task.error.as_ref().unwrap().message, "it broke");
    assert_eq!(
        fixture.attempts(lease.task_id).await[0].end,
        AttemptEndKind::Failed
    );
}

async fn a_task_without_attempts_left_is_a_dead_letter_with_its_history(fixture: Arc<Fixture>) {
    let id = fixture
        .submit(NewTask {
            max_attempts: 3,
            ..new_task()
        })
        .await;

    for (expected, retries) in [
        (Status::Retrying, 1),
        (Status::Retrying, 2),
        (Status::DeadLetter, 3),
    ] {
        assert_eq!(
            fixture.run(id, retryable(0)).await,
            Verdict::Applied(expected)
        );
        assert_eq!(fixture.task(id).await.retry_count, retries);
    }

    let attempts = fixture.attempts(id).await;
    let summary: Vec<(u32, AttemptEndKind)> = attempts.iter().map(|a| (a.attempt, a.end)).collect();
    assert_eq!(
        summary,
        [1, 2, 3].map(|number| (number, AttemptEndKind::Failed))
    );

    for attempt in &attempts {
        let error = attempt.error.as_ref().expect("each failure has an error");
        assert_eq!(
            (error.attempt, error.message.as_str()),
            (attempt.attempt, "it broke")
        );
        assert!(attempt.node_id.is_some() && attempt.host.as_deref() == Some("host-1"));
        assert!(attempt.started_at <= attempt.ended_at && attempt.ended_at.is_some());
    }

    let node = fixture.node().await;
    assert!(
        fixture.claim(node, MANY).await.is_empty(),
        "a dead letter is not claimed"
    );
}

async fn a_snooze_is_not_charged(fixture: Arc<Fixture>) {
    let id = fixture
        .submit(NewTask {
            max_attempts: 1,
            ..new_task()
        })
        .await;

    for snoozes in 1..=3 {
        assert_eq!(
            fixture.run(id, snoozed(0)).await,
            Verdict::Applied(Status::Retrying)
        );
        let task = fixture.task(id).await;

        assert_eq!(
            (task.retry_count, task.snooze_count, task.crash_count),
            (0, snoozes, 0)
        );
        assert_eq!(task.error, None, "a snooze is no error of the task");
    }

    let attempts = fixture.attempts(id).await;
    assert!(
        attempts
            .iter()
            .all(|attempt| attempt.end == AttemptEndKind::Snoozed)
    );
    assert_eq!(
        attempts[0].error.as_ref().unwrap().message,
        "too many requests",
        "the reason is stored"
    );

    fixture
        .run(
            id,
            AttemptEnd::Snoozed {
                reason: None,
                delay_ms: HOUR_MS,
            },
        )
        .await;

    let task = fixture.task(id).await;
    assert_eq!(task.due_at, task.updated_at.plus_ms(HOUR_MS));
    assert_eq!(fixture.attempts(id).await[3].error, None);
}

async fn a_hand_back_is_not_charged_and_does_not_move_the_task(fixture: Arc<Fixture>) {
    let now = fixture.store.now().await.unwrap();
    let dated = RunAt::At(now.minus_ms(HOUR_MS));
    let first = fixture
        .start(NewTask {
            run_at: dated,
            ..new_task()
        })
        .await;

    let second = fixture.submit(new_task()).await;
    let before = fixture.task(first.task_id).await;
    assert_eq!(
        fixture.finish(first, AttemptEnd::HandedBack).await,
        Verdict::Applied(Status::Queued)
    );
    let task = fixture.task(first.task_id).await;

    assert_eq!(
        (task.retry_count, task.snooze_count, task.crash_count),
        (0, 0, 0)
    );
    assert_eq!(
        (task.due_at, task.priority),
        (before.due_at, before.priority)
    );
    assert_eq!(
        fixture.attempts(first.task_id).await[0].end,
        AttemptEndKind::HandedBack
    );

    let node = fixture.node().await;
    assert_eq!(
        ids_of(&fixture.claim(node, MANY).await),
        [first.task_id, second]
    );
}

async fn a_handler_can_cancel_its_own_task(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let child = fixture.submit_children(lease, vec![new_task()]).await[0];
    assert_eq!(
        fixture.finish(lease, AttemptEnd::Cancelled).await,
        Verdict::Applied(Status::Cancelled)
    );
    assert_eq!(fixture.status(lease.task_id).await, Status::Cancelled);
    assert_eq!(
        fixture.status(child).await,
        Status::Cancelled,
        "its children are cancelled too"
    );

    assert_eq!(
        fixture.attempts(lease.task_id).await[0].end,
        AttemptEndKind::Cancelled
    );
}

async fn every_outcome_matches_the_domains_decision(fixture: Arc<Fixture>) {
    for outcome in [
        completed(),
        fatal(),
        retryable(5_000),
        snoozed(7_000),
        AttemptEnd::HandedBack,
        AttemptEnd::Cancelled,
    ] {
        let lease = fixture.start(new_task()).await;
        fixture
            .store
            .save_checkpoint(&lease, &json("[1]"))
            .await
            .unwrap();
        fixture
            .store
            .save_progress(&[(lease, json("50"))])
            .await
            .unwrap();
        let before = fixture.task(lease.task_id).await;
        fixture.finish(lease, outcome.clone()).await;
        let after = fixture.task(lease.task_id).await;
        assert_eq!(after, decided(&before, &outcome, &after), "{outcome:?}");
        fixture
            .store
            .cancel_task(&Access::All, lease.task_id)
            .await
            .unwrap();
    }
}

fn decided(before: &TaskRecord, outcome: &AttemptEnd, after: &TaskRecord) -> TaskRecord {
    let lease = lease_of(before);
    let now = after.updated_at;
    let transition = match outcome.clone() {
        AttemptEnd::Completed { result, result_url } => {
            lifecycle::finish::decide(before, &lease, result, result_url, now)
        }
        AttemptEnd::Failed {
            failure,
            retry_in_ms,
        } => lifecycle::fail::decide(
            before,
            &lease,
            failure.at(now, lease.attempt),
            retry_in_ms,
            now,
        ),
        AttemptEnd::Snoozed { reason, delay_ms } => {
            let reason = reason.map(|failure| failure.at(now, lease.attempt));
            lifecycle::snooze::decide(before, &lease, reason, delay_ms, now)
        }
        AttemptEnd::HandedBack => lifecycle::hand_back::decide(before, &lease, now),
        AttemptEnd::Cancelled => lifecycle::cancel::decide_by_handler(before, &lease, now),
    };

    transition.expect("the attempt is running").after
}

async fn a_repeated_report_is_recognised(fixture: Arc<Fixture>) {
    let ends = [
        (completed(), Status::Completed),
        (fatal(), Status::Failed),
        (retryable(HOUR_MS), Status::Retrying),
    ];
    for (outcome, status) in ends
        .into_iter()
        .chain([(snoozed(HOUR_MS), Status::Retrying)])
    {
        let lease = fixture.start(new_task()).await;
        assert_eq!(
            fixture.finish(lease, outcome.clone()).await,
            Verdict::Applied(status)
        );
        let once = fixture.task(lease.task_id).await;
        assert_eq!(
            fixture.finish(lease, outcome.clone()).await,
            Verdict::Repeated(status),
            "{outcome:?}"
        );
        assert_eq!(
            fixture.task(lease.task_id).await,
            once,
            "{outcome:?} is counted once"
        );
    }
}

async fn a_repeated_report_is_recognised_inside_one_batch(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let report = AttemptReport {
        lease,
        end: retryable(HOUR_MS),
    };
    let verdicts = fixture.finish_all(vec![report.clone(), report]).await;

    assert_eq!(
        verdicts,
        [
            Verdict::Applied(Status::Retrying),
            Verdict::Repeated(Status::Retrying)
        ]
    );

    assert_eq!(fixture.task(lease.task_id).await.retry_count, 1);
}

async fn a_second_report_with_another_outcome_changes_nothing(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    fixture.finish(lease, completed()).await;
    let once = fixture.task(lease.task_id).await;

    for outcome in [
        retryable(0),
        snoozed(0),
        AttemptEnd::HandedBack,
        AttemptEnd::Cancelled,
    ] {
        assert_eq!(
            fixture.finish(lease, outcome).await,
            Verdict::Stale(Status::Completed)
        );
    }

    let progress = fixture
        .store
        .save_progress(&[(lease, json("99"))])
        .await
        .unwrap();

    assert_eq!(progress, [Verdict::Stale(Status::Completed)]);
    assert_eq!(fixture.task(lease.task_id).await, once);
}

async fn one_bad_report_does_not_affect_its_batch(fixture: Arc<Fixture>) {
    fixture.submit_all(vec![new_task(); 4]).await;
    let node = fixture.node().await;
    let tasks = fixture.claim(node, MANY).await;
    let mut reports: Vec<AttemptReport> = tasks
        .iter()
        .map(|task| AttemptReport {
            lease: lease_of(task),
            end: completed(),
        })
        .collect();

    reports[1].lease.attempt += 1;
    reports[2].lease.task_id = TaskId(random_uuid());
    let verdicts = fixture.finish_all(reports).await;
    let done = Verdict::Applied(Status::Completed);

    assert_eq!(
        verdicts,
        [
            done,
            Verdict::Stale(Status::Running),
            Verdict::Missing,
            done
        ]
    );

    assert_eq!(fixture.status(tasks[2].id).await, Status::Running);
}

async fn a_report_on_an_unknown_task_is_answered_as_missing(fixture: Arc<Fixture>) {
    let real = fixture.start(new_task()).await;
    let lease = longhaul_domain::Lease {
        task_id: TaskId(random_uuid()),
        ..real
    };

    assert_eq!(fixture.finish(lease, completed()).await, Verdict::Missing);
    assert_eq!(
        fixture
            .store
            .save_checkpoint(&lease, &json("1"))
            .await
            .unwrap(),
        Verdict::Missing
    );

    assert_eq!(
        fixture
            .store
            .save_progress(&[(lease, json("1"))])
            .await
            .unwrap(),
        [Verdict::Missing]
    );
}

async fn an_empty_batch_of_reports_is_accepted(fixture: Arc<Fixture>) {
    assert!(fixture.finish_all(vec![]).await.is_empty());
    assert!(fixture.store.save_progress(&[]).await.unwrap().is_empty());
}

async fn long_error_texts_are_cut(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let mut long = failure(&("\0é".repeat(9_000)));
    long.detail = Some("x".repeat(100_000));

    fixture
        .finish(
            lease,
            AttemptEnd::Failed {
                failure: long.clone(),
                retry_in_ms: None,
            },
        )
        .await;

    let task = fixture.task(lease.task_id).await;
    assert_eq!(task.error, Some(long.at(task.finished_at.unwrap(), 1)));
}

async fn a_success_after_failures_has_no_error_but_a_history(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    for outcome in [
        retryable(0),
        snoozed(0),
        AttemptEnd::HandedBack,
        completed(),
    ] {
        fixture.run(id, outcome).await;
    }

    let task = fixture.task(id).await;
    assert_eq!(
        (task.status, task.error, task.attempt),
        (Status::Completed, None, 4)
    );
    let outcomes: Vec<AttemptEndKind> = fixture
        .attempts(id)
        .await
        .iter()
        .map(|attempt| attempt.end)
        .collect();

    use AttemptEndKind::{Completed, Failed, HandedBack, Snoozed};

    assert_eq!(outcomes, [Failed, Snoozed, HandedBack, Completed]);
}
