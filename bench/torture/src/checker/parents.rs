//! Parents and their children: number, counters and results (I6).

use std::collections::{BTreeSet, HashMap};

use longhaul_domain::Status;
use uuid::Uuid;

use super::{
    Evidence, Finding, Promise,
    evidence::{made, work},
};
use crate::{dump::TaskRow, tasks::leaf_value};

pub(super) fn agree_with_children(evidence: &Evidence) -> Vec<Finding> {
    let mut families: HashMap<Uuid, Vec<&TaskRow>> = HashMap::new();
    for child in evidence.tasks() {
        if let Some(parent) = child.parent {
            families.entry(parent).or_default().push(child);
        }
    }

    let mut findings = Vec::new();
    for (parent, children) in &families {
        let row = evidence.task(*parent);
        if row.is_none_or(|parent| parent.task_type != "fan") {
            let text = format!(
                "{} children have a parent that cannot have any",
                children.len()
            );
            findings.push(Finding::of(Promise::Asked, *parent, text));
        }
    }

    let tasks = evidence.tasks().iter();
    for parent in tasks.filter(|task| task.task_type == "fan") {
        let children = families.get(&parent.id).map_or(&[][..], Vec::as_slice);
        findings.extend(counters_agree(parent, children));
        if parent.status.is_ended() {
            findings.extend(end_agrees(parent, children));
        }
    }

    findings
}

/// The parent's counters equal its children's rows.
fn counters_agree(parent: &TaskRow, children: &[&TaskRow]) -> Option<Finding> {
    let at = |statuses: &[Status]| {
        children
            .iter()
            .filter(|child| statuses.contains(&child.status))
            .count()
    };

    let rows = [
        children.len(),
        at(&[Status::Completed]),
        at(&[Status::CompletedWithErrors]),
        at(&[Status::Failed, Status::DeadLetter]),
        at(&[Status::Cancelled]),
    ];
    let counters = [
        parent.children_total,
        parent.children_completed,
        parent.children_with_errors,
        parent.children_failed,
        parent.children_cancelled,
    ]
    .map(|count| count as usize);

    let text = || {
        format!(
            "it counts {counters:?} (all, completed, with errors, failed, cancelled), \
             the rows are {rows:?}"
        )
    };
    (counters != rows).then(|| Finding::of(Promise::Parents, parent.id, text()))
}

fn end_agrees(parent: &TaskRow, children: &[&TaskRow]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut broken = |text: String| findings.push(Finding::of(Promise::Parents, parent.id, text));
    let wanted = work(parent).unwrap_or_default();

    let indexes: Vec<u32> = children
        .iter()
        .filter_map(|child| work(child))
        .map(|work| work.index)
        .collect();
    let distinct: BTreeSet<u32> = indexes.iter().copied().collect();
    if distinct.len() != children.len() || distinct.iter().any(|index| *index >= wanted.children) {
        broken(format!(
            "it has the children {indexes:?} of {}",
            wanted.children
        ));
    }

    if let Some(open) = children.iter().find(|child| !child.status.is_ended()) {
        broken(format!("it has ended, but its child {} has not", open.id));
    }
    if !matches!(
        parent.status,
        Status::Completed | Status::CompletedWithErrors
    ) {
        return findings;
    }

    if children.len() != wanted.children as usize {
        broken(format!(
            "it completed with {} of {} children",
            children.len(),
            wanted.children
        ));
    }
    if children
        .iter()
        .any(|child| child.finished_at > parent.last_attempt_at)
    {
        broken("its finish step began before its last child had ended".to_owned());
    }

    let sum: u64 = children
        .iter()
        .filter_map(|child| made(child))
        .map(|made| made.value)
        .sum();
    let planned: u64 = (wanted.failing..wanted.children).map(leaf_value).sum();
    let result = made(parent).map(|made| made.value);
    if result != Some(sum) || sum != planned {
        broken(format!(
            "its result is {result:?}, its children have {sum}, and {planned} was planned"
        ));
    }

    findings
}
