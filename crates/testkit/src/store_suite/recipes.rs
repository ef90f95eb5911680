//! Ways to bring a task to each status with the store's own operations.

use longhaul_domain::{
    Lease, NewTask, NodeId, RunAt, Status, TaskId,
    contract::store::{Access, AttemptEnd, RetryScope},
};

use super::support::{OWNER, completed, fatal, json, random_uuid, retryable, snoozed};
use crate::{fixture::Fixture, names::queue_name};

/// A way to a status. Some statuses have several ways, which leave different rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipe {
    Submitted,
    HandedBack,
    ForFinishStep,
    RetriedByHand,
    Running,
    RetryingAfterFailure,
    Snoozed,
    Waiting,
    Completed,
    CompletedWithErrors,
    FailedByChildren,
    FailedForGood,
    FailedByDeadline,
    CancelledBeforeRun,
    CancelledInRun,
    CancelledByHandler,
    RetriesUsedUp,
    Quarantined,
}

impl Recipe {
    pub(super) const ALL: [Self; 18] = [
        Self::Submitted,
        Self::HandedBack,
        Self::ForFinishStep,
        Self::RetriedByHand,
        Self::Running,
        Self::RetryingAfterFailure,
        Self::Snoozed,
        Self::Waiting,
        Self::Completed,
        Self::CompletedWithErrors,
        Self::FailedByChildren,
        Self::FailedForGood,
        Self::FailedByDeadline,
        Self::CancelledBeforeRun,
        Self::CancelledInRun,
        Self::CancelledByHandler,
        Self::RetriesUsedUp,
        Self::Quarantined,
    ];

    pub(super) const fn status(self) -> Status {
        match self {
            Self::Submitted | Self::HandedBack | Self::ForFinishStep | Self::RetriedByHand => {
                Status::Queued
            }
            Self::Running => Status::Running,
            Self::RetryingAfterFailure | Self::Snoozed => Status::Retrying,
            Self::Waiting => Status::Waiting,
            Self::Completed => Status::Completed,
            Self::CompletedWithErrors => Status::CompletedWithErrors,
            Self::FailedByChildren | Self::FailedForGood | Self::FailedByDeadline => Status::Failed,
            Self::CancelledBeforeRun | Self::CancelledInRun | Self::CancelledByHandler => {
                Status::Cancelled
            }
            Self::RetriesUsedUp | Self::Quarantined => Status::DeadLetter,
        }
    }
}

/// The time until the deadline of a built task.
pub(super) const DEADLINE_MS: u64 = 100_000_000;

/// A task that a recipe built. It has its own queue and type, so that a claim finds only it.
#[derive(Debug, Clone)]
pub(super) struct Built {
    pub(super) id: TaskId,
    pub(super) kind: String,
    pub(super) node: NodeId,
    /// The lease of the last attempt, if there was one.
    pub(super) lease: Option<Lease>,
}

/// Builds a task by a recipe.
pub(super) async fn build(fixture: &Fixture, recipe: Recipe) -> Built {
    let kind = format!("kind-{}", random_uuid());
    let node = fixture.node().await;
    let deadline_at = Some(fixture.store.now().await.unwrap().plus_ms(DEADLINE_MS));
    let max_attempts = if recipe == Recipe::RetriesUsedUp {
        1
    } else {
        5
    };
    let finish_step = recipe == Recipe::ForFinishStep;

    let plain = NewTask::new(OWNER, &kind, queue_name(&kind), json("{}"));
    let id = fixture
        .submit(NewTask {
            deadline_at,
            max_attempts,
            finish_step,
            ..plain
        })
        .await;

    let mut built = Built {
        id,
        kind,
        node,
        lease: None,
    };

    if !matches!(recipe, Recipe::Submitted | Recipe::CancelledBeforeRun) {
        built.lease = Some(fixture.claim_this(node, id).await);
    }

    bring_to_status(fixture, recipe, &built).await;
    assert_eq!(
        fixture.status(id).await,
        recipe.status(),
        "{recipe:?} leads to its status"
    );

    built
}

async fn bring_to_status(fixture: &Fixture, recipe: Recipe, built: &Built) {
    let report = match recipe {
        Recipe::Submitted | Recipe::Running => return,
        Recipe::HandedBack => AttemptEnd::HandedBack,
        Recipe::ForFinishStep | Recipe::Completed => completed(),
        Recipe::RetryingAfterFailure | Recipe::RetriesUsedUp => retryable(0),
        Recipe::Snoozed => snoozed(0),
        Recipe::FailedForGood | Recipe::RetriedByHand => fatal(),
        Recipe::CancelledByHandler => AttemptEnd::Cancelled,
        Recipe::Waiting => return run_parent(fixture, built, &[]).await,
        Recipe::CompletedWithErrors => {
            return run_parent(fixture, built, &[completed(), fatal()]).await;
        }
        Recipe::FailedByChildren => return run_parent(fixture, built, &[fatal()]).await,
        Recipe::CancelledBeforeRun | Recipe::CancelledInRun => {
            fixture
                .store
                .cancel_task(&Access::All, built.id)
                .await
                .unwrap();
            return;
        }
        Recipe::FailedByDeadline => {
            fixture.clock.advance_ms(DEADLINE_MS);
            fixture.expire_deadlines().await;
            return;
        }
        Recipe::Quarantined => {
            fixture.store.retire_node(built.node).await.unwrap();
            fixture.rescue(1).await;
            return;
        }
    };

    let verdict = fixture
        .finish(built.lease.expect("the task was claimed"), report)
        .await;
    assert!(verdict.is_accepted(), "{recipe:?}: {verdict:?}");

    if recipe == Recipe::RetriedByHand {
        fixture
            .store
            .retry_task(&Access::All, built.id, RetryScope::Task)
            .await
            .unwrap();
    }
}

/// Lets the task submit children and return, and ends the children. Without ends one child stays
/// open.
async fn run_parent(fixture: &Fixture, built: &Built, ends: &[AttemptEnd]) {
    let lease = built.lease.expect("the task was claimed");
    let kind = format!("child-of-{}", built.kind);
    let child = NewTask {
        run_at: RunAt::Now,
        ..NewTask::new(OWNER, &kind, queue_name(&kind), json("{}"))
    };
    let children = fixture
        .submit_children(lease, vec![child; ends.len().max(1)])
        .await;

    fixture.finish(lease, completed()).await;
    for (child, end) in children.into_iter().zip(ends) {
        fixture.run(child, end.clone()).await;
    }
}
