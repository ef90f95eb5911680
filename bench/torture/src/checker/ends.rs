//! The end of each task: once, by its last attempt, and as its handler ended (I4, I8).

use std::collections::BTreeMap;

use longhaul_domain::Status;

use super::{
    Evidence, Finding, Promise,
    evidence::{made, work},
};
use crate::{
    dump::{AttemptRow, TaskRow},
    history::ItemHistory,
    journal::{End, Step},
    plan::Kind,
};

/// Every task has ended.
pub(super) fn nothing_stuck(evidence: &Evidence) -> Vec<Finding> {
    let open = evidence
        .tasks()
        .iter()
        .filter(|task| !task.status.is_ended());

    let text = |task: &TaskRow| {
        format!(
            "a {} is still {} in attempt {}",
            task.task_type,
            task.status.as_str(),
            task.attempt
        )
    };

    open.map(|task| Finding::of(Promise::NothingStuck, task.id, text(task)))
        .collect()
}

/// The result is that of the last attempt, as its journal has it. Attempts that were taken away
/// left no result.
pub(super) fn one_accepted_end(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    let tasks = evidence.tasks().iter();
    for task in tasks.filter(|task| task.status.is_ended()) {
        findings.extend(match task.status {
            Status::Completed | Status::CompletedWithErrors => {
                result_is_the_last_attempts(evidence, task)
            }
            Status::Failed | Status::DeadLetter => error_is_the_last_attempts(evidence, task),
            Status::Cancelled
            | Status::Queued
            | Status::Running
            | Status::Retrying
            | Status::Waiting => {
                let finding = || {
                    Finding::of(
                        Promise::NoZombieWrite,
                        task.id,
                        "it was cancelled but has a result",
                    )
                };
                task.result.is_some().then(finding).into_iter().collect()
            }
        });

        for row in evidence.archived(task.id) {
            findings.extend(archived_as_reported(evidence, task, row));
        }

        let attempts = evidence.attempts(task);
        for row in &attempts {
            findings.extend(late_report_was_refused(evidence, row));
        }

        let completed = attempts
            .iter()
            .filter(|row| row.outcome == "completed")
            .count();

        // A parent completes its first phase and then its finish step.
        let most = if task.task_type == "fan" { 2 } else { 1 };
        if completed > most {
            findings.push(Finding::of(
                Promise::OneEnd,
                task.id,
                format!("{completed} attempts completed"),
            ));
        }
    }

    findings
}

fn result_is_the_last_attempts(evidence: &Evidence, task: &TaskRow) -> Vec<Finding> {
    let Some(result) = made(task) else {
        return vec![Finding::of(
            Promise::RightEnd,
            task.id,
            format!("its result is {:?}", task.result),
        )];
    };

    if result.attempt != task.attempt {
        let text = format!(
            "the task is at attempt {}, but the result is of attempt {}",
            task.attempt, result.attempt
        );
        return vec![Finding::of(Promise::NoZombieWrite, task.id, text)];
    }

    let written = evidence
        .finish(task.id, task.attempt)
        .and_then(|(_, _, made)| made);
    if written != Some(&result) {
        let text = format!("the result is {result:?}, but the worker wrote {written:?}");
        return vec![Finding::of(Promise::RightEnd, task.id, text)];
    }

    Vec::new()
}

fn error_is_the_last_attempts(evidence: &Evidence, task: &TaskRow) -> Vec<Finding> {
    let finish = evidence
        .finish(task.id, task.attempt)
        .map(|(_, end, _)| end);
    let mut findings = Vec::new();
    if error_attempt(task.error.as_deref()) != Some(task.attempt) {
        findings.push(Finding::of(
            Promise::NoZombieWrite,
            task.id,
            format!("its error is {:?}", task.error),
        ));
    }

    if finish != Some(End::Failed) {
        let text = format!(
            "it is {}, but its worker wrote {finish:?}: {:?}",
            task.status.as_str(),
            task.error
        );
        findings.push(Finding::of(Promise::RightEnd, task.id, text));
    }

    findings
}

fn error_attempt(error: Option<&str>) -> Option<u32> {
    let error: serde_json::Value = serde_json::from_str(error?).ok()?;
    error["attempt"]
        .as_u64()
        .and_then(|attempt| u32::try_from(attempt).ok())
}

/// An attempt of the history ended as its worker's journal has it, unless it was taken away.
fn archived_as_reported(evidence: &Evidence, task: &TaskRow, row: &AttemptRow) -> Option<Finding> {
    let end = evidence
        .finish(row.task, row.attempt)
        .map(|(_, end, _)| end);

    // The children are read before the finish step is called. Without the store it fails before its
    // start.
    let began = evidence.of_attempt(row.task, row.attempt).next().is_some();
    let has_failed =
        matches!(end, Some(End::Failed | End::Stopped)) || (task.task_type == "fan" && !began);
    let fits = match row.outcome.as_str() {
        "completed" => end == Some(End::Waits) && task.task_type == "fan",
        "failed" => has_failed && error_attempt(row.error.as_deref()) == Some(row.attempt),
        "crashed" | "handed_back" => true,
        _ => false,
    };

    let text = || {
        format!(
            "attempt {} is {:?} in the history, but its worker wrote {end:?}",
            row.attempt, row.outcome
        )
    };

    (!fits).then(|| Finding::of(Promise::RightEnd, task.id, text()))
}

/// A late report of a stopped worker was refused.
fn late_report_was_refused(evidence: &Evidence, row: &AttemptRow) -> Option<Finding> {
    let was_taken = matches!(
        row.outcome.as_str(),
        "crashed" | "handed_back" | "cancelled"
    );
    let is_accepted = |step: &Step| matches!(step, Step::Late { accepted: true });
    let is_broken = was_taken
        && evidence
            .of_attempt(row.task, row.attempt)
            .any(|seen| is_accepted(&seen.line.step));

    let text = || {
        format!(
            "attempt {} was {}, but its late report was accepted",
            row.attempt, row.outcome
        )
    };

    is_broken.then(|| Finding::of(Promise::NoZombieWrite, row.task, text()))
}

/// Each task of the client ended as planned.
pub(super) fn ended_as_planned(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    for history in &evidence.histories {
        let Some(task) = history
            .acknowledged()
            .next()
            .and_then(|id| evidence.task(id))
        else {
            continue;
        };
        if task.status.is_ended() && !planned_ends(history).contains(&task.status) {
            let text = format!(
                "a {:?} ended {}: {:?}",
                history.item.kind,
                task.status.as_str(),
                task.error
            );
            findings.push(Finding::of(Promise::RightEnd, task.id, text));
        }

        let failures = work(task).map(|work| work.failures);
        if history.item.kind == Kind::Flaky
            && task.status == Status::Completed
            && Some(task.retry_count) != failures
        {
            let text = format!(
                "it should have failed {failures:?} times and failed {} times",
                task.retry_count
            );
            findings.push(Finding::of(Promise::RightEnd, task.id, text));
        }
    }

    findings
}

fn planned_ends(history: &ItemHistory) -> Vec<Status> {
    let item = &history.item;
    let own = match item.kind {
        Kind::Flaky if item.is_doomed() => Status::DeadLetter,
        Kind::Echo | Kind::Sleep | Kind::Steps | Kind::Flaky => Status::Completed,
        Kind::Fatal => Status::Failed,
        Kind::Fan if item.work.failing > 0 => Status::CompletedWithErrors,
        Kind::Fan => Status::Completed,
        Kind::Patient => Status::Cancelled,
    };

    match item.cancel_after_ms {
        Some(_) => vec![own, Status::Cancelled],
        None => vec![own],
    }
}

/// Longhaul's counts equal its rows, and every idempotency key has its task.
pub(super) fn counts_agree(evidence: &Evidence) -> Vec<Finding> {
    let mut counted: BTreeMap<(String, String), (i64, i64)> = BTreeMap::new();
    for task in evidence.tasks() {
        counted
            .entry((task.task_type.clone(), task.status.as_str().to_owned()))
            .or_default()
            .0 += 1;
    }

    for row in &evidence.dump.counts {
        // MariaDB's sums are decimals, and a JSON array may show them as text.
        let count = row
            .tasks
            .as_f64()
            .or_else(|| row.tasks.as_str()?.parse().ok())
            .unwrap_or(f64::NAN);

        counted
            .entry((row.task_type.clone(), row.status.clone()))
            .or_default()
            .1 += count as i64;
    }

    let differ = counted
        .into_iter()
        .filter(|(_, (rows, count))| rows != count);
    let text = |(what, (rows, count))| format!("{what:?}: {rows} rows, but the count is {count}");
    let mut findings: Vec<Finding> = differ
        .map(|one| Finding::other(Promise::Counts, text(one)))
        .collect();

    if evidence.dump.keys_without_task > 0 {
        let text = format!(
            "{} idempotency keys have no task",
            evidence.dump.keys_without_task
        );
        findings.push(Finding::other(Promise::Counts, text));
    }

    findings
}
