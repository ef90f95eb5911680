//! The attempts of each task: their numbers, their workers, their times, and what they went on from (I3, I5, I7).

use std::collections::HashMap;

use longhaul_domain::Status;
use uuid::Uuid;

use super::{Evidence, Finding, Promise, evidence::work};
use crate::{
    dump::{AttemptRow, TaskRow},
    journal::Step,
    settings::RETRY_MS,
};

/// Attempts are 1, 2, 3 …; each was started at most once, by the process whose node the database names.
pub(super) fn numbered_and_owned(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut processes: HashMap<Uuid, &str> = HashMap::new();
    for sighting in evidence.all_sightings() {
        if let Step::Start {
            node: Some(node), ..
        } = sighting.line.step
            && *processes.entry(node).or_insert(&sighting.incarnation) != sighting.incarnation
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
                "attempts {numbers:?} of a task that is at attempt {}",
                task.attempt
            );
            findings.push(Finding::of(Promise::Attempts, task.id, text));
        }
        for row in &attempts {
            findings.extend(started_once(evidence, row));
        }
    }
    for id in evidence.seen_tasks() {
        findings.extend(nothing_beyond(evidence, id));
    }
    findings
}

fn started_once(evidence: &Evidence, row: &AttemptRow) -> Vec<Finding> {
    let mut findings = Vec::new();
    let starts: Vec<(&str, Option<Uuid>)> = evidence
        .of_attempt(row.task, row.attempt)
        .filter_map(|sighting| match sighting.line.step {
            Step::Start { node, .. } => Some((sighting.incarnation.as_str(), node)),
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

/// No worker ran an attempt, or a task, that the database does not know.
fn nothing_beyond(evidence: &Evidence, id: Uuid) -> Vec<Finding> {
    let Some(task) = evidence.task(id) else {
        return vec![Finding::of(
            Promise::Present,
            id,
            "a worker ran this task and it is not there",
        )];
    };
    let beyond = evidence
        .sightings(id)
        .iter()
        .filter(|sighting| sighting.line.attempt > task.attempt);
    let text = |attempt| {
        format!(
            "attempt {attempt} ran, but the task stands at attempt {}",
            task.attempt
        )
    };
    beyond
        .map(|sighting| Finding::of(Promise::NothingAfterEnd, id, text(sighting.line.attempt)))
        .collect()
}

/// Crashes and failures are charged once each, and nothing else is.
pub(super) fn charged(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    for task in evidence
        .tasks()
        .iter()
        .filter(|task| task.status.is_ended())
    {
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

/// Nothing started before it was due, by the database's clock, or after the task had ended.
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
        for pair in attempts
            .windows(2)
            .filter(|pair| pair[0].outcome == "failed")
        {
            let earliest = pair[0]
                .ended_at
                .map(|ended| ended + RETRY_MS as i64 * 1_000);
            if pair[1].started_at < earliest {
                let text = format!("attempt {} did not wait for its time", pair[1].attempt);
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
        if task.attempt == 0 && !evidence.sightings(task.id).is_empty() {
            findings.push(Finding::of(
                Promise::InTime,
                task.id,
                "it was never claimed, and yet it ran",
            ));
        }
    }
    findings
}

/// The delay that the client asked for; children have none.
fn delay_micros(evidence: &Evidence, task: &TaskRow) -> i64 {
    let n = work(task)
        .filter(|_| task.parent.is_none())
        .and_then(|work| usize::try_from(work.n).ok());
    n.and_then(|n| evidence.stories.get(n))
        .map_or(0, |story| story.item.delay_ms as i64 * 1_000)
}

/// An attempt goes on from the last checkpoint that the store accepted before it, or from a later one that was tried.
pub(super) fn resumed_from_checkpoints(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    for task in evidence
        .tasks()
        .iter()
        .filter(|task| task.task_type == "steps")
    {
        for sighting in evidence.sightings(task.id) {
            let Step::Start { resumed, .. } = sighting.line.step else {
                continue;
            };
            let attempt = sighting.line.attempt;
            let earlier = || {
                evidence
                    .sightings(task.id)
                    .iter()
                    .filter(move |other| other.line.attempt < attempt)
            };
            let steps = |step: &Step| match step {
                Step::Saved { done } => (*done, *done),
                Step::Try { done } => (0, *done),
                Step::Start { .. } | Step::Finish { .. } | Step::Late { .. } => (0, 0),
            };
            let saved = earlier()
                .map(|other| steps(&other.line.step).0)
                .max()
                .unwrap_or(0);
            let tried = earlier()
                .map(|other| steps(&other.line.step).1)
                .max()
                .unwrap_or(0);
            if !(saved..=tried).contains(&resumed) {
                let text = format!(
                    "attempt {attempt} went on from {resumed}; {saved} was saved and {tried} tried"
                );
                findings.push(Finding::of(Promise::Checkpoints, task.id, text));
            }
        }
        let kept = task
            .checkpoint
            .as_deref()
            .and_then(|text| text.parse::<u32>().ok());
        let wanted = work(task).map(|work| work.steps);
        if task.status == Status::Completed && kept != wanted {
            let text = format!("it completed with checkpoint {kept:?} of {wanted:?}");
            findings.push(Finding::of(Promise::Checkpoints, task.id, text));
        }
    }
    findings
}
