//! The invariants, each as a sentence that a violation is reported with.

use std::collections::BTreeMap;

use longhaul_domain::{
    ChildCounts, Node, NodeId, Status, Task, TaskId,
    contract::store::{BulkChange, Outcome, Verdict},
    lifecycle::{Command, table},
};

use crate::census::Sight;
use crate::history::{Call, History};

/// What the store says of reports, against what the history knows of their leases.
pub(crate) fn verdicts(history: &mut History, call: Call<'_>) {
    let Call::Finish { reports, verdicts } = call else {
        return;
    };
    // A handler that cancels its own task takes all below with it, and so their reports of the same delivery.
    let cancels = call.cancels();
    for (report, verdict) in reports.iter().zip(verdicts) {
        let lease = report.lease;
        let Some(record) = history.records.get(&lease.task_id) else {
            continue;
        };
        let is_current = record.row.lease() == Some(lease);
        let told = format!(
            "t{} attempt {}, told {verdict:?}",
            record.number, lease.attempt
        );
        match verdict {
            Verdict::Applied(_) if !is_current => {
                history.violated("an end counts only if the running attempt tells it", told);
            }
            Verdict::Applied(_) => {
                history.applied.insert(lease);
            }
            Verdict::Repeated(_) if !history.applied.contains(&lease) => {
                history.violated("a repeated report was recorded before", told);
            }
            Verdict::Repeated(_) => history.saw(Sight::RepeatedReport),
            Verdict::Stale(_) | Verdict::Missing if is_current && !cancels => {
                history.violated("the report of the running attempt counts", told);
            }
            Verdict::Stale(_) | Verdict::Missing => history.saw(Sight::ZombieRefused),
        }
    }
}

/// A dead node stays dead, and only silence makes one dead.
pub(crate) fn nodes(history: &mut History, call: Call<'_>, nodes: &BTreeMap<NodeId, Node>) {
    for node in nodes.values() {
        match node.lost_at {
            None if history.dead.contains(&node.id) => {
                history.violated(
                    "a dead node stays dead",
                    format!("{} of {} lives again", node.id, node.name),
                );
            }
            None => {}
            Some(lost_at) => {
                let is_news = history.dead.insert(node.id);
                let Call::Rescue(request) = call else {
                    continue;
                };
                if is_news && node.heartbeat_at.plus_ms(request.lease_ms) > lost_at {
                    history.violated(
                        "a node is declared dead only after a lease of silence by the store's clock",
                        format!("{} was heard of {} us before", node.name, lost_at.micros_since(node.heartbeat_at)),
                    );
                }
            }
        }
    }
}

/// A row that was not there before.
pub(crate) fn new_row(history: &mut History, call: Call<'_>, row: &Task) {
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

/// One row's change, against the call that made it.
pub(crate) fn change(
    history: &mut History,
    call: Call<'_>,
    after: &Task,
    nodes: &BTreeMap<NodeId, Node>,
) {
    let Some(record) = history.records.get(&after.id) else {
        return;
    };
    let (before, ends, number) = (record.row.clone(), record.ends, record.number);
    let told = || {
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
            "an ended task stays as it is",
            ended_is_kept(&before, after),
        ),
        (
            "only a person opens an ended task",
            !opened(&before, after) || opens(call),
        ),
        (
            "a cancelled task has no result",
            after.status != Status::Cancelled || has_no_result(after),
        ),
        (
            "attempts grow by one for each claim",
            attempts_grow(call, &before, after),
        ),
        (
            "retries count the failures that the policy counts",
            retries_are_right(call, &before, after),
        ),
        (
            "snoozes count snoozes",
            snoozes_are_right(call, &before, after),
        ),
        (
            "crashes count deaths of nodes",
            crashes_are_right(call, &before, after),
        ),
        (
            "a task is rescued only from a dead node",
            rescued_from_the_dead(call, &before, after, nodes),
        ),
        (
            "only what no process has in hand is taken as a stray",
            stray_was_nobodys(history, call, &before, after),
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
            history.violated(invariant, told());
        }
    }
    if after.attempt > before.attempt {
        claim(history, call, &before, after, nodes);
    }
    count_sights(history, call, &before, after);
}

fn claim(
    history: &mut History,
    call: Call<'_>,
    before: &Task,
    after: &Task,
    nodes: &BTreeMap<NodeId, Node>,
) {
    let told = format!("t{} attempt {}", history.number(after.id), after.attempt);
    let started = after.last_attempt_at.unwrap_or_default();
    let lives = |id: &NodeId| nodes.get(id).is_some_and(|node| node.lost_at.is_none());
    let is_fresh = after
        .lease_token
        .is_some_and(|token| history.tokens.insert(token));
    let by = after.node_id.filter(lives);
    let checks = [
        (
            "nothing runs before it is due by the store's clock",
            started >= before.due_at,
        ),
        ("each lease token is handed out once", is_fresh),
        (
            "nothing is claimed from a paused queue",
            !history.paused.contains(&before.queue),
        ),
        (
            "only a living node claims",
            matches!(call, Call::Claim(node) if by == Some(node)),
        ),
    ];
    for (invariant, holds) in checks {
        if !holds {
            history.violated(invariant, told.clone());
        }
    }
}

/// Whether the commands that a call stands for lead from one state to the other. One call may be several steps for one
/// task: a delivery holds the reports of a parent and of its last child.
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

fn ended_is_kept(before: &Task, after: &Task) -> bool {
    let same = before.status == after.status
        && before.result == after.result
        && before.attempt == after.attempt
        && before.error == after.error
        && before.finished_at == after.finished_at;
    !(before.status.is_ended() && after.status.is_ended()) || same
}

fn opened(before: &Task, after: &Task) -> bool {
    before.status.is_ended() && !after.status.is_ended()
}

fn goes_to_finish(before: &Task, after: &Task) -> bool {
    before.status == Status::Waiting && after.status == Status::Queued
}

fn opens(call: Call<'_>) -> bool {
    matches!(
        call,
        Call::Retry | Call::RedoChildren | Call::Bulk(BulkChange::Retry)
    )
}

fn has_no_result(task: &Task) -> bool {
    task.result.is_none() && task.result_url.is_none()
}

fn attempts_grow(call: Call<'_>, before: &Task, after: &Task) -> bool {
    if let Call::Claim(_) = call {
        return after.attempt == before.attempt + 1 && after.status == Status::Running;
    }
    after.attempt == before.attempt
}

fn retries_are_right(call: Call<'_>, before: &Task, after: &Task) -> bool {
    if opened(before, after) {
        return after.retry_count == 0 || matches!(call, Call::RedoChildren);
    }
    let failed = matches!(
        call.recorded(after.id),
        Some(Outcome::Failed {
            retry_in_ms: Some(_),
            ..
        })
    );
    let timed_out = matches!(call, Call::Expire)
        && after
            .error
            .as_ref()
            .is_some_and(|error| error.class == "timeout");
    let counted = failed
        || (timed_out && before.status == Status::Running && after.status != Status::Running);
    let ends_well = !counted
        || (after.status == Status::DeadLetter) == (after.retry_count >= after.max_attempts);
    after.retry_count == before.retry_count + u32::from(counted) && ends_well
}

fn snoozes_are_right(call: Call<'_>, before: &Task, after: &Task) -> bool {
    let snoozed = matches!(call.recorded(after.id), Some(Outcome::Snoozed { .. }));
    opened(before, after) || after.snooze_count == before.snooze_count + u32::from(snoozed)
}

fn crashes_are_right(call: Call<'_>, before: &Task, after: &Task) -> bool {
    if opened(before, after) {
        return true;
    }
    let Call::Rescue(request) = call else {
        return after.crash_count == before.crash_count;
    };
    // A parent is only told of its child's quarantine.
    if before.status != Status::Running || after.status == Status::Running {
        return after.crash_count == before.crash_count;
    }
    let quarantined = after.status == Status::DeadLetter;
    after.crash_count == before.crash_count + 1
        && quarantined == (after.crash_count >= request.max_crashes)
}

fn rescued_from_the_dead(
    call: Call<'_>,
    before: &Task,
    after: &Task,
    nodes: &BTreeMap<NodeId, Node>,
) -> bool {
    let Call::Rescue(_) = call else { return true };
    let is_dead = before
        .node_id
        .and_then(|id| nodes.get(&id))
        .is_none_or(|node| node.lost_at.is_some());
    before.status != Status::Running || after.status == Status::Running || is_dead
}

fn stray_was_nobodys(history: &History, call: Call<'_>, before: &Task, after: &Task) -> bool {
    let was_taken = before
        .lease()
        .is_some_and(|lease| history.taken.contains(&lease));
    !matches!(call, Call::Strays) || after.status == Status::Running || !was_taken
}

fn deadline_has_passed(call: Call<'_>, before: &Task, after: &Task) -> bool {
    let ended_by_it =
        matches!(call, Call::Expire) && after.error.as_ref().is_some_and(|e| e.class == "deadline");
    let ends_now = !before.status.is_ended() && after.status.is_ended();
    !(ended_by_it && ends_now)
        || before
            .deadline_at
            .is_some_and(|deadline| Some(deadline) <= after.finished_at)
}

/// The row itself, and its parent's counters, after the call.
pub(crate) fn family(history: &mut History, row: &Task, tasks: &BTreeMap<TaskId, Task>) {
    let told = format!(
        "t{} {} {}",
        history.number(row.id),
        row.task_type,
        row.status.as_str()
    );
    let is_held =
        row.status != Status::Running || (row.lease_token.is_some() && row.node_id.is_some());
    let has_children = row.status != Status::Waiting || row.children.open() > 0;
    let is_whole = is_held && has_children && row.finished_at.is_some() == row.status.is_ended();
    if !is_whole {
        history.violated(
            "every open task is held, waits for time or children, or can be claimed",
            told.clone(),
        );
    }
    let is_done = matches!(row.status, Status::Completed | Status::CompletedWithErrors);
    let follows_children = is_done
        || row
            .error
            .as_ref()
            .is_some_and(|error| error.class == "children");
    for parent in [Some(row.id), row.parent_id]
        .into_iter()
        .flatten()
        .filter_map(|id| tasks.get(&id))
    {
        let counted = recount(parent.id, tasks);
        if counted != parent.children {
            let told = format!(
                "{told}; the parent says {:?}, its children {counted:?}",
                parent.children
            );
            history.violated("a parent's counters equal its children by state", told);
        }
    }
    let ends_now = history
        .records
        .get(&row.id)
        .is_some_and(|record| record.row.finished_at == Some(row.updated_at));
    if follows_children && ends_now && recount(row.id, tasks).open() > 0 {
        history.violated("a parent ends after its last child", told);
    }
}

fn recount(parent: TaskId, tasks: &BTreeMap<TaskId, Task>) -> ChildCounts {
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

fn count_sights(history: &mut History, call: Call<'_>, before: &Task, after: &Task) {
    let class = after
        .error
        .as_ref()
        .map_or("", |error| error.class.as_str());
    let sight = match (call, before.status, after.status) {
        (Call::Rescue(_), Status::Running, Status::Queued) => Sight::Rescue,
        (Call::Rescue(_), Status::Running, Status::DeadLetter) => Sight::Quarantine,
        (Call::Strays, Status::Running, Status::Queued) => Sight::StrayHandedBack,
        (Call::Expire, _, Status::Failed) if class == "deadline" => Sight::Deadline,
        (Call::Expire, Status::Running, _) if class == "timeout" => Sight::TimedOut,
        (Call::Claim(_), _, _) if after.checkpoint.is_some() => Sight::ResumedFromCheckpoint,
        (Call::Claim(_), _, _) => Sight::Claim,
        (_, Status::Queued | Status::Retrying, Status::Cancelled) => Sight::CancelledBeforeClaim,
        (_, Status::Running, Status::Cancelled) => Sight::CancelledWhileRunning,
        (Call::RedoChildren, _, Status::Waiting) => Sight::ChildrenRedone,
        (Call::Retry, _, Status::Queued) => Sight::PersonRetried,
        (Call::Reschedule, ..) => Sight::Rescheduled,
        (Call::Bulk(_), ..) => Sight::BulkChanged,
        (_, _, Status::DeadLetter) => Sight::DeadLetter,
        (_, Status::Running, Status::Failed) => Sight::Failed,
        (_, Status::Running, Status::Waiting) => Sight::ParentWaited,
        (_, Status::Waiting, Status::Queued) => Sight::FinishStep,
        (_, Status::Waiting | Status::Running, Status::CompletedWithErrors) => {
            Sight::ParentWithErrors
        }
        (Call::Finish { .. }, Status::Running, Status::Retrying)
            if after.snooze_count > before.snooze_count =>
        {
            Sight::Snoozed
        }
        (Call::Finish { .. }, Status::Running, Status::Queued) if after.lease_token.is_none() => {
            Sight::HandedBack
        }
        _ => return,
    };
    history.saw(sight);
}
