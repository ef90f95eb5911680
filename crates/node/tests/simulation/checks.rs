//! The invariants. Each has a sentence that a violation is reported with.

use std::collections::BTreeMap;

use longhaul_domain::{
    ChildCounts, NodeId, NodeRecord, Status, TaskId, TaskRecord,
    contract::store::{AttemptEnd, BulkChange, Verdict},
    lifecycle::{Command, table},
};

use crate::coverage::Situation;
use crate::history::{Call, History};

/// Checks the store's verdicts on reports against the recorded leases.
pub(crate) fn verdicts(history: &mut History, call: Call<'_>) {
    let Call::Finish { reports, verdicts } = call else {
        return;
    };

    // A handler that cancels its own task cancels all its descendants, so their reports in the same
    // delivery become stale.
    let cancels = call.cancels();

    for (report, verdict) in reports.iter().zip(verdicts) {
        let lease = report.lease;
        let Some(record) = history.records.get(&lease.task_id) else {
            continue;
        };
        let is_current = record.row.lease() == Some(lease);
        let detail = format!(
            "t{} attempt {}, verdict {verdict:?}",
            record.number, lease.attempt
        );

        match verdict {
            Verdict::Applied(_) if !is_current => {
                history.violated("only the running attempt can end a task", detail);
            }
            Verdict::Applied(_) => {
                history.applied.insert(lease);
            }
            Verdict::Repeated(_) if !history.applied.contains(&lease) => {
                history.violated("a repeated report was recorded before", detail);
            }
            Verdict::Repeated(_) => history.saw(Situation::RepeatedReport),
            Verdict::Stale(_) | Verdict::Missing if is_current && !cancels => {
                history.violated("the report of the running attempt is recorded", detail);
            }
            Verdict::Stale(_) | Verdict::Missing => history.saw(Situation::ZombieRefused),
        }
    }
}

/// A dead node stays dead, and a node is declared dead only after a lease of silence.
pub(crate) fn nodes(history: &mut History, call: Call<'_>, nodes: &BTreeMap<NodeId, NodeRecord>) {
    for node in nodes.values() {
        match node.lost_at {
            None if history.dead.contains(&node.id) => {
                history.violated(
                    "a dead node stays dead",
                    format!("{} of {} is alive again", node.id, node.name),
                );
            }
            None => {}
            Some(lost_at) => {
                let is_new = history.dead.insert(node.id);
                let Call::Rescue(request) = call else {
                    continue;
                };

                if is_new && node.heartbeat_at.plus_ms(request.lease_ms) > lost_at {
                    history.violated(
                        "a node is declared dead only after a lease without heartbeat",
                        format!(
                            "{} sent a heartbeat {} us before",
                            node.name,
                            lost_at.micros_since(node.heartbeat_at)
                        ),
                    );
                }
            }
        }
    }
}

/// Checks a row that is new.
pub(crate) fn new_row(history: &mut History, call: Call<'_>, row: &TaskRecord) {
    if !matches!(call, Call::Submit) || row.status != Status::Queued || row.attempt != 0 {
        history.violated(
            "every task was submitted",
            format!("{} appeared by {call:?}", row.id),
        );
    }

    if let Some(key) = &row.task_key {
        let before = history
            .keys
            .insert((row.owner.clone(), key.clone()), row.id);
        if let Some(before) = before {
            let number = history.number(before);
            history.violated(
                "one idempotency key makes one task",
                format!("{key} made t{number} and another"),
            );
        }
    }
}

/// Checks the change of one row against the call that made it.
#[expect(clippy::too_many_lines, reason = "one check after the other")]
pub(crate) fn change(
    history: &mut History,
    call: Call<'_>,
    after: &TaskRecord,
    nodes: &BTreeMap<NodeId, NodeRecord>,
) {
    let Some(record) = history.records.get(&after.id) else {
        return;
    };
    let before = record.row.clone();
    let ends = record.ends;
    let number = record.number;

    let detail = || {
        format!(
            "t{number} {} from {} attempt {} to {} attempt {} by {call:?}",
            after.task_type,
            before.status.as_str(),
            before.attempt,
            after.status.as_str(),
            after.attempt
        )
    };

    let checks = [
        (
            "a task moves along the state machine",
            is_a_path(call, before.status, after.status),
        ),
        (
            "a task ends once in its life",
            !(ends > 0 && !before.status.is_ended() && after.status.is_ended()),
        ),
        (
            "an ended task does not change",
            ended_is_unchanged(&before, after),
        ),
        (
            "only a user reopens an ended task",
            !is_reopened(&before, after) || reopens(call),
        ),
        (
            "a cancelled task has no result",
            after.status != Status::Cancelled || has_no_result(after),
        ),
        (
            "each claim increments the attempt",
            attempt_is_right(call, &before, after),
        ),
        (
            "the retry count follows the failures that the policy counts",
            retries_are_right(call, &before, after),
        ),
        (
            "the snooze count follows snoozes",
            snoozes_are_right(call, &before, after),
        ),
        (
            "the crash count follows deaths of nodes",
            crashes_are_right(call, &before, after),
        ),
        (
            "a task is rescued only from a dead node",
            rescued_from_a_dead_node(call, &before, after, nodes),
        ),
        (
            "only a task that never reached its process is a stray",
            stray_was_never_taken(history, call, &before, after),
        ),
        (
            "a finish step comes after the last child",
            !goes_to_finish(&before, after) || after.children.open() == 0,
        ),
        (
            "a deadline ends a task only when it has passed",
            deadline_has_passed(call, &before, after),
        ),
    ];

    for (invariant, holds) in checks {
        if !holds {
            history.violated(invariant, detail());
        }
    }

    if after.attempt > before.attempt {
        check_claim(history, call, &before, after, nodes);
    }

    note_situation(history, call, &before, after);
}

fn check_claim(
    history: &mut History,
    call: Call<'_>,
    before: &TaskRecord,
    after: &TaskRecord,
    nodes: &BTreeMap<NodeId, NodeRecord>,
) {
    let detail = format!("t{} attempt {}", history.number(after.id), after.attempt);
    let started = after.last_attempt_at.unwrap_or_default();
    let lives = |id: &NodeId| nodes.get(id).is_some_and(|node| node.lost_at.is_none());
    let is_fresh = after
        .lease_token
        .is_some_and(|token| history.tokens.insert(token));
    let by = after.node_id.filter(lives);

    let checks = [
        (
            "no task starts before its due time by the store's clock",
            started >= before.due_at,
        ),
        ("each lease token is new", is_fresh),
        (
            "no task is claimed from a paused queue",
            !history.paused.contains(&before.queue),
        ),
        (
            "only a living node claims",
            matches!(call, Call::Claim(node) if by == Some(node)),
        ),
    ];

    for (invariant, holds) in checks {
        if !holds {
            history.violated(invariant, detail.clone());
        }
    }
}

/// Whether the commands behind a call lead from one state to the other. One call can move a task
/// twice: one delivery may hold the reports of a parent and of its last child.
fn is_a_path(call: Call<'_>, from: Status, to: Status) -> bool {
    use Command::{
        Cancel, Checkpoint, ChildEnded, Claim, Expire, Fail, FailWaiting, Finish, HandBack,
        Progress, RedoChildren, Rescue, Retry, Snooze,
    };

    let commands: &[Command] = match call {
        Call::Submit => &[ChildEnded],
        Call::Claim(_) => &[Claim],
        Call::Strays => &[HandBack],
        Call::Progress => &[Progress, Checkpoint],
        Call::Finish { .. } if call.cancels() => {
            &[Finish, Fail, Snooze, HandBack, Cancel, ChildEnded]
        }
        Call::Finish { .. } => &[Finish, Fail, Snooze, HandBack, ChildEnded],
        Call::Cancel | Call::Bulk(BulkChange::Cancel) => &[Cancel, ChildEnded],
        Call::Retry | Call::Bulk(BulkChange::Retry) => &[Retry, ChildEnded],
        Call::RedoChildren => &[RedoChildren, Retry, ChildEnded],
        Call::Reschedule | Call::Bulk(BulkChange::Reschedule(_)) => &[Command::Reschedule],
        Call::Rescue(_) => &[Rescue, ChildEnded],
        Call::Expire => &[Expire, ChildEnded],
        Call::FailWaiting => &[FailWaiting, ChildEnded],
        Call::Node => &[],
    };

    let next = |status: Status| {
        commands
            .iter()
            .flat_map(move |command| table::targets(*command, status))
    };

    next(from).any(|one| *one == to || next(*one).any(|two| *two == to))
}

fn ended_is_unchanged(before: &TaskRecord, after: &TaskRecord) -> bool {
    let same = before.status == after.status
        && before.result == after.result
        && before.attempt == after.attempt
        && before.error == after.error
        && before.finished_at == after.finished_at;
    !(before.status.is_ended() && after.status.is_ended()) || same
}

fn is_reopened(before: &TaskRecord, after: &TaskRecord) -> bool {
    before.status.is_ended() && !after.status.is_ended()
}

fn goes_to_finish(before: &TaskRecord, after: &TaskRecord) -> bool {
    before.status == Status::Waiting && after.status == Status::Queued
}

fn reopens(call: Call<'_>) -> bool {
    matches!(
        call,
        Call::Retry | Call::RedoChildren | Call::Bulk(BulkChange::Retry)
    )
}

fn has_no_result(task: &TaskRecord) -> bool {
    task.result.is_none() && task.result_url.is_none()
}

fn attempt_is_right(call: Call<'_>, before: &TaskRecord, after: &TaskRecord) -> bool {
    if let Call::Claim(_) = call {
        return after.attempt == before.attempt + 1 && after.status == Status::Running;
    }
    after.attempt == before.attempt
}

fn retries_are_right(call: Call<'_>, before: &TaskRecord, after: &TaskRecord) -> bool {
    if is_reopened(before, after) {
        return after.retry_count == 0 || matches!(call, Call::RedoChildren);
    }

    let failed = matches!(
        call.recorded(after.id),
        Some(AttemptEnd::Failed {
            retry_in_ms: Some(_),
            ..
        })
    );

    let error_class = after.error.as_ref().map(|error| error.class.as_str());
    let stopped = before.status == Status::Running && after.status != Status::Running;
    let timed_out = matches!(call, Call::Expire) && error_class == Some("timeout") && stopped;

    let counted = failed || timed_out;
    let ends_well = !counted
        || (after.status == Status::DeadLetter) == (after.retry_count >= after.max_attempts);

    after.retry_count == before.retry_count + u32::from(counted) && ends_well
}

fn snoozes_are_right(call: Call<'_>, before: &TaskRecord, after: &TaskRecord) -> bool {
    let snoozed = matches!(call.recorded(after.id), Some(AttemptEnd::Snoozed { .. }));
    is_reopened(before, after) || after.snooze_count == before.snooze_count + u32::from(snoozed)
}

fn crashes_are_right(call: Call<'_>, before: &TaskRecord, after: &TaskRecord) -> bool {
    if is_reopened(before, after) {
        return true;
    }

    let Call::Rescue(request) = call else {
        return after.crash_count == before.crash_count;
    };

    // The parent of a quarantined child changes too, without a crash of its own.
    if before.status != Status::Running || after.status == Status::Running {
        return after.crash_count == before.crash_count;
    }

    let quarantined = after.status == Status::DeadLetter;
    after.crash_count == before.crash_count + 1
        && quarantined == (after.crash_count >= request.max_crashes)
}

fn rescued_from_a_dead_node(
    call: Call<'_>,
    before: &TaskRecord,
    after: &TaskRecord,
    nodes: &BTreeMap<NodeId, NodeRecord>,
) -> bool {
    let Call::Rescue(_) = call else { return true };

    let is_dead = before
        .node_id
        .and_then(|id| nodes.get(&id))
        .is_none_or(|node| node.lost_at.is_some());
    before.status != Status::Running || after.status == Status::Running || is_dead
}

fn stray_was_never_taken(
    history: &History,
    call: Call<'_>,
    before: &TaskRecord,
    after: &TaskRecord,
) -> bool {
    let was_taken = before
        .lease()
        .is_some_and(|lease| history.taken.contains(&lease));
    !matches!(call, Call::Strays) || after.status == Status::Running || !was_taken
}

fn deadline_has_passed(call: Call<'_>, before: &TaskRecord, after: &TaskRecord) -> bool {
    let ended_by_it =
        matches!(call, Call::Expire) && after.error.as_ref().is_some_and(|e| e.class == "deadline");
    let ends_now = !before.status.is_ended() && after.status.is_ended();
    !(ended_by_it && ends_now)
        || before
            .deadline_at
            .is_some_and(|deadline| Some(deadline) <= after.finished_at)
}

/// Checks the row itself and its parent's counters after the call.
pub(crate) fn family(
    history: &mut History,
    row: &TaskRecord,
    tasks: &BTreeMap<TaskId, TaskRecord>,
) {
    let detail = format!(
        "t{} {} {}",
        history.number(row.id),
        row.task_type,
        row.status.as_str()
    );

    let has_lease =
        row.status != Status::Running || (row.lease_token.is_some() && row.node_id.is_some());
    let has_children = row.status != Status::Waiting || row.children.open() > 0;
    let is_whole = has_lease && has_children && row.finished_at.is_some() == row.status.is_ended();
    if !is_whole {
        history.violated(
            "every open task has a lease, waits for time or children, or can be claimed",
            detail.clone(),
        );
    }

    for id in [Some(row.id), row.parent_id].into_iter().flatten() {
        let Some(parent) = tasks.get(&id) else {
            continue;
        };
        let counted = recount(parent.id, tasks);
        if counted != parent.children {
            let detail = format!(
                "{detail}; the parent counts {:?}, its children are {counted:?}",
                parent.children
            );
            history.violated("a parent's counters equal its children by state", detail);
        }
    }

    let is_done = matches!(row.status, Status::Completed | Status::CompletedWithErrors);
    let follows_children = is_done
        || row
            .error
            .as_ref()
            .is_some_and(|error| error.class == "children");
    let ends_now = history
        .records
        .get(&row.id)
        .is_some_and(|record| record.row.finished_at == Some(row.updated_at));
    if follows_children && ends_now && recount(row.id, tasks).open() > 0 {
        history.violated("a parent ends after its last child", detail);
    }
}

fn recount(parent: TaskId, tasks: &BTreeMap<TaskId, TaskRecord>) -> ChildCounts {
    let mut counts = ChildCounts::default();
    for child in tasks.values().filter(|task| task.parent_id == Some(parent)) {
        counts.total += 1;
        match child.status {
            Status::Completed => counts.completed += 1,
            Status::CompletedWithErrors => counts.with_errors += 1,
            Status::Failed | Status::DeadLetter => counts.failed += 1,
            Status::Cancelled => counts.cancelled += 1,
            Status::Queued | Status::Running | Status::Retrying | Status::Waiting => {}
        }
    }

    counts
}

fn note_situation(history: &mut History, call: Call<'_>, before: &TaskRecord, after: &TaskRecord) {
    let class = after
        .error
        .as_ref()
        .map_or("", |error| error.class.as_str());

    let situation = match (call, before.status, after.status) {
        (Call::Rescue(_), Status::Running, Status::Queued) => Situation::Rescue,
        (Call::Rescue(_), Status::Running, Status::DeadLetter) => Situation::Quarantine,
        (Call::Strays, Status::Running, Status::Queued) => Situation::StrayHandedBack,
        (Call::Expire, _, Status::Failed) if class == "deadline" => Situation::Deadline,
        (Call::Expire, Status::Running, _) if class == "timeout" => Situation::TimedOut,
        (Call::Claim(_), _, _) if after.checkpoint.is_some() => Situation::ResumedFromCheckpoint,
        (Call::Claim(_), _, _) => Situation::Claim,
        (_, Status::Queued | Status::Retrying, Status::Cancelled) => {
            Situation::CancelledBeforeClaim
        }
        (_, Status::Running, Status::Cancelled) => Situation::CancelledWhileRunning,
        (Call::RedoChildren, _, Status::Waiting) => Situation::ChildrenRedone,
        (Call::Retry, _, Status::Queued) => Situation::UserRetried,
        (Call::Reschedule, ..) => Situation::Rescheduled,
        (Call::Bulk(_), ..) => Situation::BulkChanged,
        (_, _, Status::DeadLetter) => Situation::DeadLetter,
        (_, Status::Running, Status::Failed) => Situation::Failed,
        (_, Status::Running, Status::Waiting) => Situation::ParentWaited,
        (_, Status::Waiting, Status::Queued) => Situation::FinishStep,
        (_, Status::Waiting | Status::Running, Status::CompletedWithErrors) => {
            Situation::ParentWithErrors
        }
        (Call::Finish { .. }, Status::Running, Status::Retrying)
            if after.snooze_count > before.snooze_count =>
        {
            Situation::Snoozed
        }
        (Call::Finish { .. }, Status::Running, Status::Queued) if after.lease_token.is_none() => {
            Situation::HandedBack
        }
        _ => return,
    };

    history.saw(situation);
}
