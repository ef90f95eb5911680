//! What the client was told, beside what the database holds (I1, I2).

use std::collections::{HashMap, HashSet};

use longhaul_domain::Status;
use uuid::Uuid;

use super::{Evidence, Finding, Promise, evidence::work};
use crate::{
    door::Answer,
    dump::TaskRow,
    history::{Call, Story},
};

/// Every acknowledged task is there once, and whatever is there was asked for.
pub(super) fn present_and_asked(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut by_number: HashMap<u64, Vec<&TaskRow>> = HashMap::new();
    for task in evidence.tasks().iter().filter(|task| task.parent.is_none()) {
        match work(task).filter(|work| was_sent(evidence, work.n)) {
            Some(work) => by_number.entry(work.n).or_default().push(task),
            None => findings.push(Finding::of(
                Promise::Asked,
                task.id,
                "nobody asked for this task",
            )),
        }
    }
    for story in &evidence.stories {
        let n = story.item.work.n;
        let there = by_number.get(&n).map_or(&[][..], Vec::as_slice);
        findings.extend(story_agrees(story, there));
    }
    findings
}

fn was_sent(evidence: &Evidence, n: u64) -> bool {
    usize::try_from(n)
        .ok()
        .and_then(|n| evidence.stories.get(n))
        .is_some_and(Story::was_sent)
}

fn story_agrees(story: &Story, there: &[&TaskRow]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let acknowledged: HashSet<Uuid> = story.acknowledged().collect();
    for id in &acknowledged {
        if !there.iter().any(|task| task.id == *id) {
            let text = format!(
                "item {} was acknowledged and is not there",
                story.item.work.n
            );
            findings.push(Finding::of(Promise::Present, *id, text));
        }
    }
    if there.len() > 1 || acknowledged.len() > 1 {
        let text = format!(
            "one key of item {} has {} tasks, and {} were acknowledged",
            story.item.work.n,
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

/// What one read answered.
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

/// A read that began after another had ended sees the same or something later, and an end stays as it is.
pub(super) fn reads_go_forward(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    for story in &evidence.stories {
        let Some(id) = story.acknowledged().next() else {
            continue;
        };
        let reads: Vec<Seen> = story.calls.iter().filter_map(seen).collect();
        for (index, later) in reads.iter().enumerate() {
            for earlier in reads[..index]
                .iter()
                .filter(|earlier| earlier.to < later.from)
            {
                if later.version < earlier.version || later.attempt < earlier.attempt {
                    findings.push(Finding::of(
                        Promise::Reads,
                        id,
                        "a later read saw an earlier version",
                    ));
                }
            }
        }
        if story
            .calls
            .iter()
            .any(|call| call.answer == Answer::NotFound)
        {
            findings.push(Finding::of(
                Promise::Present,
                id,
                "an acknowledged task was not found",
            ));
        }
        let told_ends = story.calls.iter().filter_map(told_end);
        for told in
            told_ends.filter(|told| evidence.task(id).is_some_and(|task| task.status != *told))
        {
            let text = format!(
                "the client was told {} and the task is something else now",
                told.as_str()
            );
            findings.push(Finding::of(Promise::OneEnd, id, text));
        }
    }
    findings
}

/// The end that a call told of.
fn told_end(call: &Call) -> Option<Status> {
    let (Answer::Read { status, .. } | Answer::Cancelled(status)) = call.answer else {
        return None;
    };
    status.is_ended().then_some(status)
}

/// Nothing that the client asked was refused, and no worker panicked.
pub(super) fn nothing_refused(evidence: &Evidence) -> Vec<Finding> {
    let mut findings: Vec<Finding> = evidence
        .panics
        .iter()
        .map(|line| Finding::other(Promise::NoSurprise, format!("a worker said: {line}")))
        .collect();
    for story in &evidence.stories {
        for call in &story.calls {
            if let Answer::Refused(why) = &call.answer {
                let text = format!("item {}, {:?}: {why}", story.item.work.n, call.asked);
                findings.push(Finding::other(Promise::NoSurprise, text));
            }
        }
    }
    findings
}
