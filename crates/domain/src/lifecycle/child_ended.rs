//! Child ended: the parent's counters follow its children. A waiting parent continues or ends when
//! its last child has ended.

use super::{Refusal, Transition, finish, touched};
use crate::{
    bounds,
    task::{ChildCounts, Status, TaskRecord},
    time::Timestamp,
};

/// A child that was made, ended, or was opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildMove {
    /// `None` when the child is new.
    pub from: Option<Status>,
    pub to: Status,
}

impl ChildMove {
    /// The move that matters to the parent, if the child's change was one.
    pub fn between(from: Option<Status>, to: Status) -> Option<Self> {
        let open = |status: Option<Status>| status.is_some_and(|status| !status.is_ended());
        let is_irrelevant = from == Some(to) || (open(from) && open(Some(to)));
        (!is_irrelevant).then_some(Self { from, to })
    }
}

/// The parent after its children moved, at `now`.
pub fn decide(
    parent: &TaskRecord,
    moves: &[ChildMove],
    now: Timestamp,
) -> Result<Transition, Refusal> {
    let children = moves.iter().fold(parent.children, count);
    if children.total > bounds::CHILDREN {
        return Err(Refusal::TooManyChildren);
    }

    let counted = TaskRecord {
        children,
        ..parent.clone()
    };
    if parent.status == Status::Waiting && children.open() == 0 {
        return Ok(finish::move_on(&counted, now));
    }

    Ok(Transition {
        after: touched(&counted, now),
        archived: None,
        event: None,
    })
}

fn count(mut counts: ChildCounts, step: &ChildMove) -> ChildCounts {
    match step.from {
        None => counts.total += 1,
        Some(from) => {
            if let Some(ended) = slot(&mut counts, from) {
                // Counts that were changed by hand must not wrap around.
                *ended = ended.saturating_sub(1);
            }
        }
    }

    if let Some(ended) = slot(&mut counts, step.to) {
        *ended += 1;
    }

    counts
}

/// The counter of children that ended as `status`; the open ones have none.
fn slot(counts: &mut ChildCounts, status: Status) -> Option<&mut u32> {
    match status {
        Status::Completed => Some(&mut counts.completed),
        Status::CompletedWithErrors => Some(&mut counts.with_errors),
        Status::Failed | Status::DeadLetter => Some(&mut counts.failed),
        Status::Cancelled => Some(&mut counts.cancelled),
        Status::Queued | Status::Running | Status::Retrying | Status::Waiting => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_were_changed_by_hand_do_not_wrap_around() {
        let counts = ChildCounts {
            total: 2,
            ..ChildCounts::default()
        };
        let retried = ChildMove {
            from: Some(Status::Failed),
            to: Status::Queued,
        };

        assert_eq!(count(counts, &retried), counts);
        let too_many = ChildCounts {
            completed: 3,
            ..counts
        };

        assert_eq!(
            (too_many.open(), too_many.verdict()),
            (0, Status::Completed)
        );
    }
}
