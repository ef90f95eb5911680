//! The attempts of each task: numbers, workers, times and checkpoints (I3, I5, I7).

use std::collections::HashMap;

use longhaul_domain::Status;
use uuid::Uuid;

use super::{Evidence, Finding, Promise, evidence::work};
use crate::{
    dump::{AttemptRow, TaskRow},
    journal::Step,
    settings::RETRY_MS,
};

/// Attempts are 1, 2, 3 …. Each was started at most once, by the node that the database names.
pub(super) fn numbered_and_owned(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut processes: HashMap<Uuid, &str> = HashMap::new();
    for observation in evidence.all_observations() {
        if let Step::Start {
            node: Some(node), ..
        } = observation.line.step
            && *processes.entry(node).or_insert(&observation.incarnation) != observation.incarnation
        {
            findings.push(Finding::other(
                Promise::Attempts,
                format!("node {node} was two processes"),
            ));
        }
    }

    for task in evidence.tasks() {
        let attempts = evidence.attempts(task);
        let mut numbers: Vec<u32> = attempts.iter().map(|row| row.attempt).collect();
        numbers.sort_unstable();
        if !numbers.iter().copied().eq(1..=task.attempt) && task.status.is_ended() {
            let text = format!(
                "attempts {numbers:?}, but the task is at attempt {}",
                task.attempt
            );
            findings.push(Finding::of(Promise::Attempts, task.id, text));
        }

        for row in &attempts {
            findings.extend(started_once(evidence, row));
        }
    }

    for id in evidence.seen_tasks() {
        findings.extend(no_unknown_attempt(evidence, id));
    }

    findings
}

fn started_once(evidence: &Evidence, row: &AttemptRow) -> Vec<Finding> {
    let mut findings = Vec::new();
    let starts: Vec<(&str, Option<Uuid>)> = evidence
        .of_attempt(row.task, row.attempt)
        .filter_map(|observation| match observation.line.step {
            Step::Start { node, .. } => Some((observation.incarnation.as_str(), node)),
            Step::Try { .. } | Step::Saved { .. } | Step::Finish { .. } | Step::Late { .. } => None,
        })
        .collect();
    if starts.len() > 1 {
        let text = format!("attempt {} was started by {starts:?}", row.attempt);
        findings.push(Finding::of(Promise::Attempts, row.task, text));
    }

    if starts.iter().any(|(_, node)| *node != row.node) {
        let text = format!(
            "attempt {} ran on {starts:?}, but belongs to node {:?}",
            row.attempt, row.node
        );
        findings.push(Finding::of(Promise::Attempts, row.task, text));
    }

    findings
}

/// No worker ran an attempt or a task that the database does not have.
fn no_unknown_attempt(evidence: &Evidence, id: Uuid) -> Vec<Finding> {
    let Some(task) = evidence.task(id) else {
        return vec![Finding::of(
            Promise::Present,
            id,
            "a worker ran this task, but it does not exist",
        )];
    };

    let beyond = evidence
        .observations(id)
        .iter()
        .filter(|observation| observation.line.attempt > task.attempt);
    let text = |attempt| {
        format!(
            "attempt {attempt} ran, but the task is at attempt {}",
            task.attempt
        )
    };

    beyond
        .map(|observation| {
            Finding::of(Promise::NothingAfterEnd, id, text(observation.line.attempt))
        })
        .collect()
}

/// Crashes and failures are charged once each, and nothing else.
pub(super) fn charged(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    let tasks = evidence.tasks().iter();
    for task in tasks.filter(|task| task.status.is_ended()) {
        let attempts = evidence.attempts(task);
        let count = |outcome: &str| attempts.iter().filter(|row| row.outcome == outcome).count();

        // A fatal failure ends the task and is not a retry.
        let failed = count("failed").saturating_sub(usize::from(task.status == Status::Failed));
        let charges = (task.crash_count as usize, task.retry_count as usize);
        if charges != (count("crashed"), failed) {
            let found = (count("crashed"), failed);
            let text =
                format!("crashes and retries are charged as {charges:?}, but {found:?} happened");
            findings.push(Finding::of(Promise::Attempts, task.id, text));
        }
    }

    findings
}

/// No attempt started before it was due by the database's clock, or after the end of the task.
pub(super) fn in_time(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    for task in evidence.tasks() {
        let attempts = evidence.attempts(task);

        let due_first = task.created_at + delay_micros(evidence, task);
        if task.started_at.is_some_and(|started| started < due_first) {
            findings.push(Finding::of(
                Promise::InTime,
                task.id,
                "the first attempt started before it was due",
            ));
        }
        if task.status == Status::Completed
            && task.last_attempt_at.is_some_and(|last| last < task.due_at)
        {
            findings.push(Finding::of(
                Promise::InTime,
                task.id,
                "the last attempt started before it was due",
            ));
        }

        let pairs = attempts.windows(2);
        for pair in pairs.filter(|pair| pair[0].outcome == "failed") {
            let earliest = pair[0]
                .ended_at
                .map(|ended| ended + RETRY_MS as i64 * 1_000);
            if pair[1].started_at < earliest {
                let text = format!("attempt {} started before its retry delay", pair[1].attempt);
                findings.push(Finding::of(Promise::InTime, task.id, text));
            }
        }

        let late = attempts
            .iter()
            .filter(|row| task.finished_at.is_some() && row.started_at > task.finished_at);
        for row in late {
            let text = format!("attempt {} was claimed after the end", row.attempt);
            findings.push(Finding::of(Promise::NothingAfterEnd, task.id, text));
        }

        if task.attempt == 0 && !evidence.observations(task.id).is_empty() {
            findings.push(Finding::of(
                Promise::InTime,
                task.id,
                "it was never claimed but ran",
            ));
        }
    }

    findings
}

/// The delay of the submit. Children have none.
fn delay_micros(evidence: &Evidence, task: &TaskRow) -> i64 {
    if task.parent.is_some() {
        return 0;
    }

    let n = work(task).and_then(|work| usize::try_from(work.n).ok());
    let history = n.and_then(|n| evidence.histories.get(n));
    history.map_or(0, |history| history.item.delay_ms as i64 * 1_000)
}

/// An attempt resumes from the last checkpoint that the store accepted before it, or from a later
/// one that was attempted.
pub(super) fn resumed_from_checkpoints(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    let tasks = evidence.tasks().iter();
    for task in tasks.filter(|task| task.task_type == "steps") {
        for observation in evidence.observations(task.id) {
            let Step::Start { resumed, .. } = observation.line.step else {
                continue;
            };
            let attempt = observation.line.attempt;
            let (saved, tried) = checkpoints_before(evidence, task.id, attempt);
            if !(saved..=tried).contains(&resumed) {
                let text = format!(
                    "attempt {attempt} resumed from {resumed}; {saved} was saved and {tried} tried"
                );
                findings.push(Finding::of(Promise::Checkpoints, task.id, text));
            }
        }

        let stored = task
            .checkpoint
            .as_deref()
            .and_then(|text| text.parse::<u32>().ok());
        let wanted = work(task).map(|work| work.steps);
        if task.status == Status::Completed && stored != wanted {
            let text = format!("it completed with checkpoint {stored:?} of {wanted:?}");
            findings.push(Finding::of(Promise::Checkpoints, task.id, text));
        }
    }

    findings
}

/// The last checkpoints that earlier attempts saved and tried to save.
fn checkpoints_before(evidence: &Evidence, id: Uuid, attempt: u32) -> (u32, u32) {
    let mut saved = 0;
    let mut tried = 0;
    for observation in evidence.observations(id) {
        if observation.line.attempt >= attempt {
            continue;
        }
        match observation.line.step {
            Step::Saved { done } => {
                saved = saved.max(done);
                tried = tried.max(done);
            }
            Step::Try { done } => tried = tried.max(done),
            Step::Start { .. } | Step::Finish { .. } | Step::Late { .. } => {}
        }
    }

    (saved, tried)
}
