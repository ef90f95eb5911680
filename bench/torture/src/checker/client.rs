//! The client's answers compared with the database (I1, I2).

use std::collections::{HashMap, HashSet};

use longhaul_domain::Status;
use uuid::Uuid;

use super::{Evidence, Finding, Promise, evidence::work};
use crate::{
    dump::TaskRow,
    gateway::Answer,
    history::{Call, ItemHistory},
};

/// Every acknowledged task exists once, and every task was requested.
pub(super) fn present_and_requested(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut by_number: HashMap<u64, Vec<&TaskRow>> = HashMap::new();
    for task in evidence.tasks().iter().filter(|task| task.parent.is_none()) {
        match work(task) {
            Some(work) if was_sent(evidence, work.n) => {
                by_number.entry(work.n).or_default().push(task);
            }
            _ => findings.push(Finding::of(
                Promise::Asked,
                task.id,
                "the client did not submit this task",
            )),
        }
    }

    for history in &evidence.histories {
        let n = history.item.work.n;
        let there = by_number.get(&n).map_or(&[][..], Vec::as_slice);
        findings.extend(history_agrees(history, there));
    }

    findings
}

fn was_sent(evidence: &Evidence, n: u64) -> bool {
    usize::try_from(n)
        .ok()
        .and_then(|n| evidence.histories.get(n))
        .is_some_and(ItemHistory::was_sent)
}

fn history_agrees(history: &ItemHistory, there: &[&TaskRow]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let acknowledged: HashSet<Uuid> = history.acknowledged().collect();
    for id in &acknowledged {
        if !there.iter().any(|task| task.id == *id) {
            let text = format!(
                "item {} was acknowledged but does not exist",
                history.item.work.n
            );
            findings.push(Finding::of(Promise::Present, *id, text));
        }
    }

    if there.len() > 1 || acknowledged.len() > 1 {
        let text = format!(
            "one key of item {} has {} tasks, and {} were acknowledged",
            history.item.work.n,
            there.len(),
            acknowledged.len()
        );

        findings.push(Finding {
            promise: Promise::Asked,
            task: there.first().map(|task| task.id),
            text,
        });
    }

    findings
}

/// The answer of one read.
struct Seen {
    from: i64,
    to: i64,
    attempt: u32,
    version: u64,
}

fn seen(call: &Call) -> Option<Seen> {
    let Answer::Read {
        attempt, version, ..
    } = call.answer
    else {
        return None;
    };
    Some(Seen {
        from: call.from,
        to: call.to,
        attempt,
        version,
    })
}

/// A read that began after another had ended sees the same version or a later one, and an end does
/// not change.
pub(super) fn reads_go_forward(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    for history in &evidence.histories {
        let Some(id) = history.acknowledged().next() else {
            continue;
        };

        let reads: Vec<Seen> = history.calls.iter().filter_map(seen).collect();
        for (index, later) in reads.iter().enumerate() {
            let earlier = reads[..index].iter();
            for earlier in earlier.filter(|earlier| earlier.to < later.from) {
                if later.version < earlier.version || later.attempt < earlier.attempt {
                    findings.push(Finding::of(
                        Promise::Reads,
                        id,
                        "a later read saw an earlier version",
                    ));
                }
            }
        }

        let mut calls = history.calls.iter();
        if calls.any(|call| call.answer == Answer::NotFound) {
            findings.push(Finding::of(
                Promise::Present,
                id,
                "an acknowledged task was not found",
            ));
        }

        let final_status = evidence.task(id).map(|task| task.status);
        for reported in history.calls.iter().filter_map(reported_end) {
            if final_status.is_some_and(|status| status != reported) {
                let text = format!(
                    "the client got {}, but the task has another status now",
                    reported.as_str()
                );
                findings.push(Finding::of(Promise::OneEnd, id, text));
            }
        }
    }

    findings
}

/// The end that a call returned.
fn reported_end(call: &Call) -> Option<Status> {
    let (Answer::Read { status, .. } | Answer::Cancelled(status)) = call.answer else {
        return None;
    };
    status.is_ended().then_some(status)
}

/// No request of the client was refused, and no worker panicked.
pub(super) fn nothing_refused(evidence: &Evidence) -> Vec<Finding> {
    let mut findings: Vec<Finding> = evidence
        .panics
        .iter()
        .map(|line| Finding::other(Promise::NoSurprise, format!("a worker logged: {line}")))
        .collect();

    for history in &evidence.histories {
        for call in &history.calls {
            if let Answer::Refused(why) = &call.answer {
                let text = format!("item {}, {:?}: {why}", history.item.work.n, call.asked);
                findings.push(Finding::other(Promise::NoSurprise, text));
            }
        }
    }

    findings
}
