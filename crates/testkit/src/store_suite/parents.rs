//! Parents and children: counters, the parent's end, the finish step, and redoing failed children.

use std::sync::Arc;

use longhaul_domain::{
    ChildCounts, Lease, NewTask, Phase, Status, StoreError, TaskId,
    contract::store::{Access, AttemptEnd, AttemptReport, RetryScope, Verdict},
};

use super::{
    case::{Case, cases},
    support::{completed, fatal, forged, new_task, random_uuid, refused_field, retryable},
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_parent_waits_for_its_children_and_holds_no_node,
        a_parent_whose_children_all_completed_is_completed,
        a_parent_without_a_completed_child_fails,
        a_parent_of_mixed_children_is_completed_with_errors,
        a_parent_of_a_child_with_errors_is_completed_with_errors,
        children_that_end_before_their_parent_count,
        a_parent_without_children_completes_at_once,
        a_finish_step_runs_when_the_last_child_has_ended,
        a_finish_step_without_children_still_runs,
        a_failed_finish_step_fails_the_parent,
        ends_propagate_through_nested_parents,
        a_child_and_its_parent_may_end_in_one_batch,
        a_child_counts_in_any_state_of_its_parent,
        only_failed_children_are_redone,
        a_redone_parent_ends_again_after_its_children,
        a_redo_needs_failed_children_and_no_open_ones,
        a_retried_child_does_not_reopen_its_parent,
        a_stale_parent_may_not_submit_children,
        children_of_one_batch_have_one_parent,
        a_batch_may_mix_children_and_other_tasks,
    ]
}

/// A running parent and its children, which are not claimed yet.
async fn family(fixture: &Fixture, parent: NewTask, children: usize) -> (Lease, Vec<TaskId>) {
    let lease = fixture.start(parent).await;
    let children = fixture
        .submit_children(lease, vec![child(); children])
        .await;
    (lease, children)
}

fn child() -> NewTask {
    NewTask {
        task_type: "child".into(),
        ..new_task()
    }
}

/// A parent that has returned, and whose children have then ended with these outcomes.
async fn ended_family(fixture: &Fixture, ends: &[AttemptEnd]) -> (TaskId, Vec<TaskId>) {
    let (parent, children) = family(fixture, new_task(), ends.len()).await;
    assert_eq!(
        fixture.finish(parent, completed()).await,
        Verdict::Applied(Status::Waiting)
    );

    for (child, end) in children.iter().zip(ends) {
        assert_eq!(fixture.status(parent.task_id).await, Status::Waiting);
        fixture.run(*child, end.clone()).await;
    }

    (parent.task_id, children)
}

async fn a_parent_waits_for_its_children_and_holds_no_node(fixture: Arc<Fixture>) {
    let (parent, children) = family(&fixture, new_task(), 3).await;
    assert_eq!(
        fixture.task(parent.task_id).await.children,
        ChildCounts {
            total: 3,
            ..ChildCounts::default()
        }
    );

    assert_eq!(
        fixture.task(children[0]).await.parent_id,
        Some(parent.task_id)
    );
    assert_eq!(
        fixture.finish(parent, completed()).await,
        Verdict::Applied(Status::Waiting)
    );
    assert_eq!(
        fixture.finish(parent, completed()).await,
        Verdict::Repeated(Status::Waiting)
    );

    assert_eq!(
        fixture.attempts(parent.task_id).await.len(),
        1,
        "its attempt has ended"
    );
    let listed: Vec<TaskId> = fixture
        .children_of(parent.task_id)
        .await
        .iter()
        .map(|task| task.id)
        .collect();

    assert_eq!(listed, children);
    let node = fixture.node().await;
    assert!(
        fixture.claim(node, 10).await.is_empty(),
        "a waiting parent is not claimed"
    );
}

async fn a_parent_whose_children_all_completed_is_completed(fixture: Arc<Fixture>) {
    let (parent, _) = ended_family(&fixture, &[completed(), completed()]).await;
    let task = fixture.task(parent).await;
    assert_eq!((task.status, task.error), (Status::Completed, None));

    assert_eq!(
        task.children,
        ChildCounts {
            total: 2,
            completed: 2,
            ..ChildCounts::default()
        }
    );

    assert!(task.result.is_some(), "its own result stays");
}

async fn a_parent_without_a_completed_child_fails(fixture: Arc<Fixture>) {
    let (parent, _) = ended_family(&fixture, &[fatal(), AttemptEnd::Cancelled]).await;
    let task = fixture.task(parent).await;
    assert_eq!(task.status, Status::Failed);
    assert_eq!(task.error.unwrap().class, "children");

    assert_eq!(
        task.children,
        ChildCounts {
            total: 2,
            failed: 1,
            cancelled: 1,
            ..ChildCounts::default()
        }
    );
}

async fn a_parent_of_mixed_children_is_completed_with_errors(fixture: Arc<Fixture>) {
    let (parent, _) = ended_family(&fixture, &[completed(), fatal(), completed()]).await;
    let task = fixture.task(parent).await;
    assert_eq!(task.status, Status::CompletedWithErrors);

    assert_eq!(
        task.children,
        ChildCounts {
            total: 3,
            completed: 2,
            failed: 1,
            ..ChildCounts::default()
        }
    );
}

async fn a_parent_of_a_child_with_errors_is_completed_with_errors(fixture: Arc<Fixture>) {
    let (parent, children) = family(&fixture, new_task(), 1).await;
    fixture.finish(parent, completed()).await;
    let node = fixture.node().await;
    let middle = fixture.claim_this(node, children[0]).await;
    let below = NewTask {
        task_type: "grandchild".into(),
        ..new_task()
    };
    let grandchildren = fixture.submit_children(middle, vec![below; 2]).await;

    fixture.finish(middle, completed()).await;
    fixture.run(grandchildren[0], completed()).await;
    fixture.run(grandchildren[1], fatal()).await;
    let task = fixture.task(parent.task_id).await;
    assert_eq!(task.status, Status::CompletedWithErrors);

    assert_eq!(
        task.children,
        ChildCounts {
            total: 1,
            with_errors: 1,
            ..ChildCounts::default()
        }
    );
}

async fn children_that_end_before_their_parent_count(fixture: Arc<Fixture>) {
    let (parent, children) = family(&fixture, new_task(), 2).await;
    fixture.run(children[0], completed()).await;
    fixture.run(children[1], fatal()).await;
    assert_eq!(fixture.status(parent.task_id).await, Status::Running);
    assert_eq!(
        fixture.finish(parent, completed()).await,
        Verdict::Applied(Status::CompletedWithErrors)
    );
}

async fn a_parent_without_children_completes_at_once(fixture: Arc<Fixture>) {
    let parent = fixture.start(new_task()).await;
    assert!(fixture.submit_children(parent, vec![]).await.is_empty());
    assert_eq!(
        fixture.finish(parent, completed()).await,
        Verdict::Applied(Status::Completed)
    );
}

async fn a_finish_step_runs_when_the_last_child_has_ended(fixture: Arc<Fixture>) {
    let (parent, children) = family(
        &fixture,
        NewTask {
            finish_step: true,
            ..new_task()
        },
        2,
    )
    .await;
    assert_eq!(
        fixture.finish(parent, completed()).await,
        Verdict::Applied(Status::Waiting)
    );
    fixture.run(children[0], completed()).await;
    fixture.run(children[1], fatal()).await;
    let task = fixture.task(parent.task_id).await;
    assert_eq!(
        (task.status, task.phase, task.finished_at),
        (Status::Queued, Phase::Finish, None)
    );
    let node = fixture.node().await;
    let step = fixture.claim_this(node, parent.task_id).await;
    assert_eq!(step.attempt, 2);
    assert_eq!(
        fixture.finish(parent, completed()).await,
        Verdict::Stale(Status::Running),
        "the first phase is over"
    );
    let verdict = fixture
        .finish(
            step,
            AttemptEnd::Completed {
                result: None,
                result_url: None,
            },
        )
        .await;
    assert_eq!(
        verdict,
        Verdict::Applied(Status::CompletedWithErrors),
        "the status follows the children"
    );
    assert_eq!(
        fixture.task(parent.task_id).await.result,
        None,
        "the finish step sets the result"
    );
    assert_eq!(fixture.attempts(parent.task_id).await.len(), 2);
}

async fn a_finish_step_without_children_still_runs(fixture: Arc<Fixture>) {
    let parent = fixture
        .start(NewTask {
            finish_step: true,
            ..new_task()
        })
        .await;

    assert_eq!(
        fixture.finish(parent, completed()).await,
        Verdict::Applied(Status::Queued)
    );
    assert_eq!(
        fixture.finish(parent, completed()).await,
        Verdict::Repeated(Status::Queued)
    );
    assert_eq!(
        fixture.run(parent.task_id, completed()).await,
        Verdict::Applied(Status::Completed)
    );
}

async fn a_failed_finish_step_fails_the_parent(fixture: Arc<Fixture>) {
    let (parent, children) = family(
        &fixture,
        NewTask {
            finish_step: true,
            ..new_task()
        },
        1,
    )
    .await;
    fixture.finish(parent, completed()).await;
    fixture.run(children[0], completed()).await;
    assert_eq!(
        fixture.run(parent.task_id, retryable(0)).await,
        Verdict::Applied(Status::Retrying)
    );
    assert_eq!(
        fixture.task(parent.task_id).await.phase,
        Phase::Finish,
        "the finish step is retried"
    );
    assert_eq!(
        fixture.run(parent.task_id, fatal()).await,
        Verdict::Applied(Status::Failed)
    );
    let redo = fixture
        .store
        .retry_task(&Access::All, parent.task_id, RetryScope::FailedChildren)
        .await;
    assert!(matches!(redo, Err(StoreError::Refused(_))), "{redo:?}");
}

async fn ends_propagate_through_nested_parents(fixture: Arc<Fixture>) {
    let mut leases = vec![
        fixture
            .start(NewTask {
                task_type: "level-0".into(),
                ..new_task()
            })
            .await,
    ];

    for level in 1..5 {
        let below = NewTask {
            task_type: format!("level-{level}").into(),
            ..new_task()
        };
        let child = fixture
            .submit_children(leases[level - 1], vec![below])
            .await[0];
        let node = fixture.node().await;

        leases.push(fixture.claim_this(node, child).await);
    }

    for lease in &leases[..4] {
        assert_eq!(
            fixture.finish(*lease, completed()).await,
            Verdict::Applied(Status::Waiting)
        );
    }

    assert_eq!(
        fixture.finish(leases[4], completed()).await,
        Verdict::Applied(Status::Completed)
    );

    for lease in leases {
        assert_eq!(
            fixture.status(lease.task_id).await,
            Status::Completed,
            "the last end ends all parents"
        );
    }
}

async fn a_child_and_its_parent_may_end_in_one_batch(fixture: Arc<Fixture>) {
    for child_first in [true, false] {
        let (parent, children) = family(&fixture, new_task(), 1).await;
        let node = fixture.node().await;
        let child = fixture.claim_this(node, children[0]).await;
        let mut reports = [parent, child].map(|lease| AttemptReport {
            lease,
            end: completed(),
        });

        if child_first {
            reports.reverse();
        }

        let verdicts = fixture.finish_all(reports.to_vec()).await;
        let first_of_parent = if child_first {
            Status::Completed
        } else {
            Status::Waiting
        };
        let verdicts = if child_first {
            verdicts[1]
        } else {
            verdicts[0]
        };

        assert_eq!(
            verdicts,
            Verdict::Applied(first_of_parent),
            "reports are applied in order"
        );
        assert_eq!(fixture.status(parent.task_id).await, Status::Completed);
        assert_eq!(fixture.status(child.task_id).await, Status::Completed);
    }
}

async fn a_child_counts_in_any_state_of_its_parent(fixture: Arc<Fixture>) {
    let cases = [
        (AttemptEnd::HandedBack, 5, Status::Queued),
        (retryable(0), 5, Status::Retrying),
        (completed(), 5, Status::Waiting),
        (fatal(), 5, Status::Failed),
        (retryable(0), 1, Status::DeadLetter),
    ];

    for (outcome, max_attempts, status) in cases {
        let (parent, children) = family(
            &fixture,
            NewTask {
                max_attempts,
                ..new_task()
            },
            2,
        )
        .await;
        assert_eq!(
            fixture.finish(parent, outcome).await,
            Verdict::Applied(status)
        );
        let before = fixture.task(parent.task_id).await;
        assert_eq!(
            fixture.run(children[0], completed()).await,
            Verdict::Applied(Status::Completed)
        );
        let after = fixture.task(parent.task_id).await;
        assert_eq!((after.status, after.children.completed), (status, 1));
        assert!(after.version > before.version, "readers can tell");
        assert_eq!(after.finished_at, before.finished_at);
        fixture
            .store
            .cancel_task(&Access::All, parent.task_id)
            .await
            .unwrap();
        fixture
            .store
            .cancel_task(&Access::All, children[1])
            .await
            .unwrap();
    }
}

async fn only_failed_children_are_redone(fixture: Arc<Fixture>) {
    let (parent, children) =
        ended_family(&fixture, &[completed(), fatal(), AttemptEnd::Cancelled]).await;
    let good = fixture.task(children[0]).await;
    let cancelled = fixture.task(children[2]).await;
    fixture
        .store
        .retry_task(&Access::All, parent, RetryScope::FailedChildren)
        .await
        .unwrap();

    let task = fixture.task(parent).await;
    assert_eq!(
        (task.status, task.error, task.finished_at),
        (Status::Waiting, None, None)
    );

    assert_eq!(
        task.children,
        ChildCounts {
            total: 3,
            completed: 1,
            cancelled: 1,
            ..ChildCounts::default()
        }
    );

    assert_eq!(fixture.status(children[1]).await, Status::Queued);
    assert_eq!(fixture.task(children[0]).await, good);
    assert_eq!(
        fixture.task(children[2]).await,
        cancelled,
        "a cancelled child did not fail"
    );
}

async fn a_redone_parent_ends_again_after_its_children(fixture: Arc<Fixture>) {
    let (parent, children) = ended_family(&fixture, &[completed(), fatal()]).await;
    fixture
        .store
        .retry_task(&Access::All, parent, RetryScope::FailedChildren)
        .await
        .unwrap();
    fixture.run(children[1], completed()).await;
    let task = fixture.task(parent).await;

    assert_eq!(
        (task.status, task.children.completed),
        (Status::Completed, 2)
    );

    let (parent, children) = ended_family(&fixture, &[fatal(), fatal()]).await;
    fixture
        .store
        .retry_task(&Access::All, parent, RetryScope::FailedChildren)
        .await
        .unwrap();
    fixture.run(children[0], completed()).await;
    assert_eq!(
        fixture.status(parent).await,
        Status::Waiting,
        "both children are redone"
    );

    fixture.run(children[1], fatal()).await;
    assert_eq!(fixture.status(parent).await, Status::CompletedWithErrors);
}

async fn a_redo_needs_failed_children_and_no_open_ones(fixture: Arc<Fixture>) {
    let (parent, children) = ended_family(&fixture, &[completed(), fatal(), fatal()]).await;
    fixture
        .store
        .retry_task(&Access::All, children[1], RetryScope::Task)
        .await
        .unwrap();
    let before = fixture.task(parent).await;
    let redo = fixture
        .store
        .retry_task(&Access::All, parent, RetryScope::FailedChildren)
        .await;

    assert!(
        matches!(redo, Err(StoreError::Refused(_))),
        "one child is open: {redo:?}"
    );
    assert_eq!(fixture.task(parent).await, before);
    let alone = fixture.start(new_task()).await;

    fixture.finish(alone, fatal()).await;
    let redo = fixture
        .store
        .retry_task(&Access::All, alone.task_id, RetryScope::FailedChildren)
        .await;

    assert!(
        matches!(redo, Err(StoreError::Refused(_))),
        "it has no children: {redo:?}"
    );
}

async fn a_retried_child_does_not_reopen_its_parent(fixture: Arc<Fixture>) {
    let (parent, children) = ended_family(&fixture, &[completed(), fatal()]).await;
    fixture
        .store
        .retry_task(&Access::All, children[1], RetryScope::Task)
        .await
        .unwrap();
    let task = fixture.task(parent).await;

    assert_eq!(
        (task.status, task.children.failed, task.children.open()),
        (Status::CompletedWithErrors, 0, 1)
    );
    fixture.run(children[1], completed()).await;
    let task = fixture.task(parent).await;

    assert_eq!(
        (task.status, task.children.completed),
        (Status::CompletedWithErrors, 2)
    );
}

async fn a_stale_parent_may_not_submit_children(fixture: Arc<Fixture>) {
    let parent = fixture.start(new_task()).await;
    let stale = [
        forged(&parent),
        Lease {
            attempt: 0,
            ..parent
        },
        Lease {
            attempt: 2,
            ..parent
        },
    ];

    for lease in stale {
        let answer = fixture
            .store
            .submit_task(NewTask {
                parent: Some(lease),
                ..child()
            })
            .await;
        assert!(matches!(answer, Err(StoreError::Refused(_))), "{answer:?}");
    }

    let unknown = Lease {
        task_id: TaskId(random_uuid()),
        ..parent
    };
    let answer = fixture
        .store
        .submit_task(NewTask {
            parent: Some(unknown),
            ..child()
        })
        .await;
    assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");

    fixture.finish(parent, completed()).await;
    let answer = fixture
        .store
        .submit_task(NewTask {
            parent: Some(parent),
            ..child()
        })
        .await;

    assert!(
        matches!(answer, Err(StoreError::Refused(_))),
        "an ended attempt submits nothing: {answer:?}"
    );
    assert_eq!(fixture.all_tasks().await.len(), 1);
}

async fn children_of_one_batch_have_one_parent(fixture: Arc<Fixture>) {
    let first = fixture.start(new_task()).await;
    let second = fixture.start(new_task()).await;
    let of = |lease| NewTask {
        parent: Some(lease),
        ..child()
    };
    let answer = fixture
        .store
        .submit_tasks(vec![of(first), of(second)])
        .await;

    assert_eq!(refused_field(answer), "parent");
    assert_eq!(fixture.all_tasks().await.len(), 2, "all or none");
}

async fn a_batch_may_mix_children_and_other_tasks(fixture: Arc<Fixture>) {
    let parent = fixture.start(new_task()).await;
    let before = fixture.task(parent.task_id).await.version;
    let of = NewTask {
        parent: Some(parent),
        ..child()
    };
    let ids = fixture.submit_all(vec![of.clone(), child(), of]).await;
    let task = fixture.task(parent.task_id).await;

    assert_eq!(
        (task.children.total, task.version),
        (2, before + 1),
        "the parent changes once for the whole batch"
    );
    assert_eq!(fixture.task(ids[1]).await.parent_id, None);
}
