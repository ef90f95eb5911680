//! Every state × every operation, with the domain's table as the oracle.

use std::sync::Arc;

use longhaul_domain::{
    Lease, LeaseToken, Status, StoreError, TaskRecord,
    contract::store::{Access, AttemptEnd, RetryScope, Verdict},
    filter::Retention,
    lifecycle::{Cell, Command, reschedule::Reschedule, table},
};

use super::{
    case::{Case, cases},
    recipes::{Built, DEADLINE_MS, Recipe, build},
    support::{completed, fatal, forged, json, random_uuid, retryable, snoozed},
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_claim_goes_by_the_table,
        a_heartbeat_goes_by_the_table,
        progress_goes_by_the_table,
        a_checkpoint_goes_by_the_table,
        a_finish_goes_by_the_table,
        a_failure_goes_by_the_table,
        a_fatal_failure_goes_by_the_table,
        a_snooze_goes_by_the_table,
        a_hand_back_goes_by_the_table,
        a_cancel_goes_by_the_table,
        a_retry_goes_by_the_table,
        a_redo_of_children_goes_by_the_table,
        a_reschedule_goes_by_the_table,
        a_rescue_goes_by_the_table,
        an_expiry_goes_by_the_table,
        a_prune_goes_by_the_table,
    ]
}

async fn a_claim_goes_by_the_table(fixture: Arc<Fixture>) {
    for recipe in Recipe::ALL {
        let (built, before) = built_and_read(&fixture, recipe).await;
        let node = fixture.node().await;
        let claimed = fixture
            .claim_from(node, &[&built.kind], &[&built.kind], 10)
            .await;
        let after = fixture.task(built.id).await;
        let moved = expect_by_table(Command::Claim, recipe, &before, &after);

        assert_eq!(
            claimed,
            if moved { vec![after] } else { vec![] },
            "{recipe:?}: the answer is the row"
        );
    }
}

async fn a_heartbeat_goes_by_the_table(fixture: Arc<Fixture>) {
    for recipe in Recipe::ALL {
        let (built, before) = built_and_read(&fixture, recipe).await;
        let asking = fixture.node().await;
        for (lease, genuine) in leases_to_try(&built, &before) {
            let gone = fixture
                .store
                .heartbeat_node(asking, &[lease])
                .await
                .unwrap();
            let valid = genuine && recipe == Recipe::Running;
            let expected = if valid {
                vec![]
            } else {
                vec![(lease, Verdict::Stale(before.status))]
            };

            assert_eq!(gone, expected, "{recipe:?}, genuine: {genuine}");
            assert_eq!(
                fixture.task(built.id).await,
                before,
                "{recipe:?}: a heartbeat changes no task"
            );
        }
    }
}

async fn progress_goes_by_the_table(fixture: Arc<Fixture>) {
    for recipe in Recipe::ALL {
        let (built, before) = built_and_read(&fixture, recipe).await;
        for (lease, genuine) in leases_to_try(&built, &before) {
            let verdict = fixture
                .store
                .save_progress(&[(lease, json("{\"percent\":40}"))])
                .await
                .unwrap()[0];
            expect_fenced(
                &fixture,
                Command::Progress,
                recipe,
                &before,
                genuine,
                verdict,
            )
            .await;
        }
    }
}

async fn a_checkpoint_goes_by_the_table(fixture: Arc<Fixture>) {
    for recipe in Recipe::ALL {
        let (built, before) = built_and_read(&fixture, recipe).await;
        for (lease, genuine) in leases_to_try(&built, &before) {
            let verdict = fixture
                .store
                .save_checkpoint(&lease, &json("{\"page\":3}"))
                .await
                .unwrap();
            expect_fenced(
                &fixture,
                Command::Checkpoint,
                recipe,
                &before,
                genuine,
                verdict,
            )
            .await;
        }
    }
}

async fn a_finish_goes_by_the_table(fixture: Arc<Fixture>) {
    report_goes_by_the_table(&fixture, Command::Finish, completed()).await;
}

async fn a_failure_goes_by_the_table(fixture: Arc<Fixture>) {
    report_goes_by_the_table(&fixture, Command::Fail, retryable(60_000)).await;
}

async fn a_fatal_failure_goes_by_the_table(fixture: Arc<Fixture>) {
    report_goes_by_the_table(&fixture, Command::Fail, fatal()).await;
}

async fn a_snooze_goes_by_the_table(fixture: Arc<Fixture>) {
    report_goes_by_the_table(&fixture, Command::Snooze, snoozed(60_000)).await;
}

async fn a_hand_back_goes_by_the_table(fixture: Arc<Fixture>) {
    report_goes_by_the_table(&fixture, Command::HandBack, AttemptEnd::HandedBack).await;
}

async fn report_goes_by_the_table(fixture: &Fixture, command: Command, outcome: AttemptEnd) {
    for recipe in Recipe::ALL {
        let (built, before) = built_and_read(fixture, recipe).await;
        for (lease, genuine) in leases_to_try(&built, &before) {
            let verdict = fixture.finish(lease, outcome.clone()).await;
            expect_fenced(fixture, command, recipe, &before, genuine, verdict).await;
        }
    }
}

async fn a_cancel_goes_by_the_table(fixture: Arc<Fixture>) {
    for recipe in Recipe::ALL {
        let (built, before) = built_and_read(&fixture, recipe).await;
        let answer = fixture
            .store
            .cancel_task(&Access::All, built.id)
            .await
            .unwrap();
        let after = fixture.task(built.id).await;

        expect_by_table(Command::Cancel, recipe, &before, &after);
        assert_eq!(
            answer.status, after.status,
            "{recipe:?}: the answer is the status"
        );
        assert_eq!(
            answer.moved.is_empty(),
            before.status == after.status,
            "{recipe:?}: the move is returned"
        );
    }
}

async fn a_retry_goes_by_the_table(fixture: Arc<Fixture>) {
    for recipe in Recipe::ALL {
        let (built, before) = built_and_read(&fixture, recipe).await;
        let answer = fixture
            .store
            .retry_task(&Access::All, built.id, RetryScope::Task)
            .await;
        let moved = expect_by_table(
            Command::Retry,
            recipe,
            &before,
            &fixture.task(built.id).await,
        );

        expect_answer(answer, moved, recipe);
    }
}

async fn a_redo_of_children_goes_by_the_table(fixture: Arc<Fixture>) {
    for recipe in Recipe::ALL {
        let (built, before) = built_and_read(&fixture, recipe).await;
        let answer = fixture
            .store
            .retry_task(&Access::All, built.id, RetryScope::FailedChildren)
            .await;
        let after = fixture.task(built.id).await;

        // The table allows it, but a task that failed itself has no child to redo.
        if matches!(recipe, Recipe::FailedForGood | Recipe::FailedByDeadline) {
            assert_eq!(after, before, "{recipe:?} is left alone");
            expect_answer(answer, false, recipe);
            continue;
        }

        let moved = expect_by_table(Command::RedoChildren, recipe, &before, &after);
        expect_answer(answer, moved, recipe);
    }
}

async fn a_reschedule_goes_by_the_table(fixture: Arc<Fixture>) {
    let change = Reschedule {
        priority: Some(7),
        ..Reschedule::default()
    };

    for recipe in Recipe::ALL {
        let (built, before) = built_and_read(&fixture, recipe).await;
        let answer = fixture
            .store
            .reschedule_task(&Access::All, built.id, &change)
            .await;
        let after = fixture.task(built.id).await;
        let moved = expect_by_table(Command::Reschedule, recipe, &before, &after);
        let returned = answer.as_ref().ok().cloned();

        assert_eq!(
            returned,
            moved.then_some(after),
            "{recipe:?}: the answer is the row"
        );
        expect_answer(answer.map(|_| ()), moved, recipe);
    }
}

async fn a_rescue_goes_by_the_table(fixture: Arc<Fixture>) {
    for recipe in Recipe::ALL {
        let (built, before) = built_and_read(&fixture, recipe).await;
        fixture.store.retire_node(built.node).await.unwrap();
        let rescued = fixture.rescue(5).await;
        let moved = expect_by_table(
            Command::Rescue,
            recipe,
            &before,
            &fixture.task(built.id).await,
        );

        assert_eq!(
            rescued.requeued,
            if moved { vec![built.id] } else { vec![] },
            "{recipe:?}"
        );
        assert!(
            rescued.quarantined.is_empty(),
            "{recipe:?}: the first crash does not quarantine"
        );
    }
}

async fn an_expiry_goes_by_the_table(fixture: Arc<Fixture>) {
    for recipe in Recipe::ALL {
        let (built, before) = built_and_read(&fixture, recipe).await;
        fixture.clock.advance_ms(DEADLINE_MS);
        let expired = fixture.expire_deadlines().await;
        let after = fixture.task(built.id).await;

        if recipe == Recipe::RetriedByHand {
            assert_eq!(
                (expired, after),
                (0, before),
                "a retry removes a passed deadline"
            );
            continue;
        }

        let moved = expect_by_table(Command::Expire, recipe, &before, &after);
        assert_eq!(expired, usize::from(moved), "{recipe:?}");
    }
}

async fn a_prune_goes_by_the_table(fixture: Arc<Fixture>) {
    let keep = Retention {
        ended_ms: 0,
        dead_letter_ms: 0,
    };

    for recipe in Recipe::ALL {
        let (built, before) = built_and_read(&fixture, recipe).await;
        let removed = fixture.store.prune_tasks(&keep, &[built.id]).await.unwrap();
        match table::cell(Command::Prune, recipe.status()) {
            Cell::Gone => {
                assert!(
                    removed >= 1 && !fixture.exists(built.id).await,
                    "{recipe:?} is pruned"
                );
            }
            Cell::Refused | Cell::Unchanged | Cell::To(_) => {
                assert_eq!(
                    (removed, fixture.task(built.id).await),
                    (0, before),
                    "{recipe:?} is not pruned"
                );
            }
        }
    }
}

async fn built_and_read(fixture: &Fixture, recipe: Recipe) -> (Built, TaskRecord) {
    let built = build(fixture, recipe).await;
    let before = fixture.task(built.id).await;
    (built, before)
}

/// Leases with one wrong field each, and then the real lease of the last attempt.
fn leases_to_try(built: &Built, task: &TaskRecord) -> Vec<(Lease, bool)> {
    let made_up = Lease {
        task_id: built.id,
        attempt: task.attempt,
        token: LeaseToken(random_uuid()),
    };
    let last = built.lease.unwrap_or(made_up);
    let older = Lease {
        attempt: last.attempt.saturating_sub(1),
        ..last
    };
    let newer = Lease {
        attempt: last.attempt + 1,
        ..last
    };
    vec![
        (older, false),
        (newer, false),
        (forged(&last), false),
        (last, built.lease.is_some()),
    ]
    .into_iter()
    .filter(|(lease, genuine)| *genuine || built.lease != Some(*lease))
    .collect()
}

/// Asserts that the table allows the move. Returns whether the task moved.
fn expect_by_table(
    command: Command,
    recipe: Recipe,
    before: &TaskRecord,
    after: &TaskRecord,
) -> bool {
    match table::cell(command, before.status) {
        Cell::To(targets) => {
            assert!(
                targets.contains(&after.status),
                "{command:?} took {recipe:?} to {:?}",
                after.status
            );
            assert!(
                after.version > before.version,
                "{command:?} on {recipe:?}: a change increments the version"
            );

            true
        }
        Cell::Refused | Cell::Unchanged | Cell::Gone => {
            assert_eq!(after, before, "{command:?} on {recipe:?} changes nothing");
            false
        }
    }
}

fn expect_answer(answer: Result<(), StoreError>, moved: bool, recipe: Recipe) {
    match answer {
        Ok(()) => assert!(
            moved,
            "{recipe:?}: a command that changes nothing must be refused"
        ),
        Err(StoreError::Refused(_)) => {
            assert!(!moved, "{recipe:?}: a refused command changes nothing")
        }
        Err(error) => panic!("{recipe:?}: {error}"),
    }
}

/// Asserts that an attempt's write is applied exactly when it has the lease of the running attempt,
/// and that the verdict matches.
async fn expect_fenced(
    fixture: &Fixture,
    command: Command,
    recipe: Recipe,
    before: &TaskRecord,
    genuine: bool,
    verdict: Verdict,
) {
    let context = format!("{command:?} on {recipe:?}, genuine: {genuine}");
    let after = fixture.task(before.id).await;
    if genuine && before.status == Status::Running {
        expect_by_table(command, recipe, before, &after);
        assert_eq!(verdict, Verdict::Applied(after.status), "{context}");
        return;
    }

    assert_eq!(&after, before, "{context}: nothing changes");
    // The row has the token of the last attempt, unless a later command removed it.
    let remembered = genuine && before.lease_token.is_some();
    let by_this_command = table::targets(command, Status::Running).contains(&before.status);
    let expected = if remembered && by_this_command {
        Verdict::Repeated(before.status)
    } else {
        Verdict::Stale(before.status)
    };

    assert_eq!(verdict, expected, "{context}");
}
