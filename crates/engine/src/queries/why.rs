//! Why a task is not running yet: one reason with its facts.
//!
//! [`Engine::why`] collects the [`Facts`] from the store and the local node, and [`decide`] picks
//! the reason. Of several reasons the one that must be removed first is given.

use std::collections::BTreeSet;

use longhaul_domain::{
    Attempt, NodeRecord, QueueName, Serves, Status, StoreError, TaskError, TaskId, TaskRecord,
    Timestamp, contract::store::Access, statistics::CountFilter,
};

use super::queue_counts::{Counts, count};
use crate::Engine;

/// The reason why a task is not running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It has ended.
    Ended {
        status: Status,
        at: Option<Timestamp>,
    },
    /// It runs.
    Running {
        attempt: u32,
        host: Option<String>,
        since: Option<Timestamp>,
    },
    /// Its own code has returned, and children have not ended.
    WaitsForChildren { open: u32, total: u32 },
    /// Its store cannot be written, so nothing is claimed.
    StoreNotWritable,
    /// Its queue is paused.
    Paused { queue: QueueName, since: Timestamp },
    /// It is not due.
    NotDue { due_at: Timestamp, status: Status },
    /// No node runs tasks.
    NoNode,
    /// No node runs the type.
    NoWorker { task_type: String },
    /// Nodes run the type, but none of them serves the queue.
    QueueNotServed {
        queue: QueueName,
        task_type: String,
        served: BTreeSet<String>,
    },
    /// A rate limit put it back. It is tried again when the limit has room.
    Limited {
        reason: String,
        due_at: Timestamp,
        in_s: u64,
    },
    /// It is due, and the only node has no free slot for it.
    SlotsFull {
        queue: QueueName,
        used: usize,
        slots: usize,
        ahead: Ahead,
    },
    /// It is due, and others are claimed first.
    InLine {
        queue: QueueName,
        ahead: Ahead,
        waiting: i64,
        running: i64,
        nodes: usize,
    },
}

/// How many tasks of its queue would be claimed before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    Exactly(usize),
    /// Counting stopped here.
    AtLeast(usize),
}

/// Tasks ahead that are counted: some milliseconds of the store's time.
const MAX_COUNTED: usize = 1_000;

/// The error class of a snooze because a limit had no room in time.
pub const LIMIT_FULL: &str = "limit_full";
/// The error class of a provider's refusal.
const RATE_LIMITED: &str = "rate_limited";

impl Why {
    /// The stable code for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Ended { .. } => "ended",
            Self::Running { .. } => "running",
            Self::WaitsForChildren { .. } => "waits_for_children",
            Self::StoreNotWritable => "store_not_writable",
            Self::Paused { .. } => "paused",
            Self::NotDue { .. } => "not_due",
            Self::NoNode => "no_node",
            Self::NoWorker { .. } => "no_worker",
            Self::QueueNotServed { .. } => "queue_not_served",
            Self::Limited { .. } => "limited",
            Self::SlotsFull { .. } => "slots_full",
            Self::InLine { .. } => "in_line",
        }
    }
}

/// What is known besides the task itself.
#[derive(Debug, Clone)]
struct Facts {
    now: Timestamp,
    /// Whether a claim could be committed.
    is_store_writable: bool,
    /// Since when the task's queue is paused.
    paused_at: Option<Timestamp>,
    /// Whether this process knows the type.
    is_type_known: bool,
    /// The nodes that run tasks.
    nodes: Vec<NodeRecord>,
    /// The tasks of the queue, by status.
    counts: Counts,
    /// The error of the last attempt, if the task put itself back.
    last_error: Option<TaskError>,
    ahead: usize,
    /// The used and all slots of the local node, if it serves the task and none is free.
    full: Option<(usize, usize)>,
}

impl Engine {
    /// Why the task is not running yet. `knows` says which types this process knows.
    pub async fn why(
        &self,
        access: &Access,
        id: TaskId,
        knows: impl Fn(&str) -> bool + Send,
    ) -> Result<Why, StoreError> {
        let task = self.store.get_task(access, id).await?;
        let task_counts = self.store.read_task_counts(&CountFilter::default()).await?;
        let now = self.store.now().await?;
        let last_attempt = self.last_attempt_put_back(access, &task).await?;
        let ahead = if task.status.is_claimable() && task.due_at <= now {
            self.store.count_ahead(&task, now, MAX_COUNTED).await?
        } else {
            0
        };

        let queues = self.store.list_queues().await?;
        let queue = queues.into_iter().find(|queue| queue.name == task.queue);
        let mut nodes = self.store.list_nodes().await?;
        nodes.retain(NodeRecord::is_at_work);

        let is_store_writable = !task.status.is_claimable() || self.check_write().await.is_ok();
        let facts = Facts {
            now,
            is_store_writable,
            paused_at: queue.and_then(|queue| queue.paused_at),
            is_type_known: knows(&task.task_type),
            nodes,
            counts: count(&task_counts, |count| task.queue == *count.key.queue),
            last_error: last_attempt.and_then(|attempt| attempt.error),
            ahead,
            full: self.full_slots(&task),
        };
        Ok(decide(&task, &facts))
    }

    /// The last attempt of a task that put itself back.
    async fn last_attempt_put_back(
        &self,
        access: &Access,
        task: &TaskRecord,
    ) -> Result<Option<Attempt>, StoreError> {
        let is_put_back = task.status == Status::Retrying && task.snooze_count > 0;
        if !is_put_back || task.attempt == 0 {
            return Ok(None);
        }

        let before = task.attempt - 1;
        let mut attempts = self.store.list_attempts(access, task.id, before, 1).await?;
        Ok(attempts.pop())
    }

    fn full_slots(&self, task: &TaskRecord) -> Option<(usize, usize)> {
        let node = self.local_node()?;
        if node.has_room(&task.queue, &task.task_type) != Some(false) {
            return None;
        }

        let (used, total) = node.slots();
        (total > 0).then_some((used, total))
    }
}

fn decide(task: &TaskRecord, facts: &Facts) -> Why {
    match task.status {
        Status::Completed
        | Status::CompletedWithErrors
        | Status::Failed
        | Status::Cancelled
        | Status::DeadLetter => Why::Ended {
            status: task.status,
            at: task.finished_at,
        },
        Status::Running => Why::Running {
            attempt: task.attempt,
            host: task.host.clone(),
            since: task.last_attempt_at,
        },
        Status::Waiting => Why::WaitsForChildren {
            open: task.children.open(),
            total: task.children.total,
        },
        Status::Queued | Status::Retrying => decide_claimable(task, facts),
    }
}

/// The reason for a task that a node may claim once it is due.
fn decide_claimable(task: &TaskRecord, facts: &Facts) -> Why {
    if !facts.is_store_writable {
        return Why::StoreNotWritable;
    }

    if let Some(since) = facts.paused_at {
        return Why::Paused {
            queue: task.queue.clone(),
            since,
        };
    }

    if task.due_at > facts.now {
        return decide_early(task, facts);
    }

    if let Some(why) = not_served(task, facts) {
        return why;
    }

    let ahead = if facts.ahead < MAX_COUNTED {
        Ahead::Exactly(facts.ahead)
    } else {
        Ahead::AtLeast(MAX_COUNTED)
    };
    if let (1, Some((used, slots))) = (facts.nodes.len(), facts.full) {
        return Why::SlotsFull {
            queue: task.queue.clone(),
            used,
            slots,
            ahead,
        };
    }

    let n = |status: Status| facts.counts.get(status.as_str()).copied().unwrap_or(0);
    let others_waiting = n(Status::Queued) + n(Status::Retrying) - 1;
    Why::InLine {
        queue: task.queue.clone(),
        ahead,
        waiting: others_waiting.max(0),
        running: n(Status::Running),
        nodes: facts.nodes.len(),
    }
}

/// The reason for a task that is not due.
fn decide_early(task: &TaskRecord, facts: &Facts) -> Why {
    match limit_reason(facts) {
        Some(reason) => Why::Limited {
            reason,
            due_at: task.due_at,
            in_s: task.due_at.micros_since(facts.now).div_ceil(1_000_000),
        },
        None => Why::NotDue {
            due_at: task.due_at,
            status: task.status,
        },
    }
}

/// Why no node would take the task, if none would. A node of an older version does not say what it
/// serves; it may serve what this process knows.
fn not_served(task: &TaskRecord, facts: &Facts) -> Option<Why> {
    if facts.nodes.is_empty() {
        return Some(Why::NoNode);
    }
    if facts.is_type_known && facts.nodes.iter().any(|node| node.serves.is_none()) {
        return None;
    }

    let serves = facts.nodes.iter().filter_map(|node| node.serves.as_ref());
    let of_type: Vec<&Serves> = serves
        .filter(|serves| serves.task_types.contains(&task.task_type))
        .collect();
    if of_type.is_empty() {
        return Some(Why::NoWorker {
            task_type: task.task_type.clone(),
        });
    }

    let queues = of_type.iter().flat_map(|serves| &serves.queues);
    let served: BTreeSet<String> = queues.cloned().collect();
    if served.contains(task.queue.as_str()) {
        return None;
    }
    Some(Why::QueueNotServed {
        queue: task.queue.clone(),
        task_type: task.task_type.clone(),
        served,
    })
}

/// The message of the limit that put the task back.
fn limit_reason(facts: &Facts) -> Option<String> {
    let error = facts.last_error.as_ref()?;
    matches!(error.class.as_str(), LIMIT_FULL | RATE_LIMITED).then(|| error.message.clone())
}

#[cfg(test)]
mod tests {
    use longhaul_domain::{Json, NewTask, NodeId, lifecycle::submit};
    use longhaul_testkit::names::queue_name;

    use super::*;

    fn task(status: Status) -> TaskRecord {
        let new = NewTask::new(
            "u-1",
            "t",
            queue_name("q"),
            Json::trusted("null".to_owned()),
        );
        let id = longhaul_domain::TaskIdSequence::default().next_id(Timestamp::default(), 1);
        TaskRecord {
            status,
            ..submit::decide(&new, id, Timestamp::from_micros(1_000))
                .unwrap()
                .after
        }
    }

    fn node(queues: &[&str], task_types: &[&str]) -> NodeRecord {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let serves = Serves {
            queues: names(queues),
            task_types: names(task_types),
            slots: 4,
        };
        let started_at = Timestamp::default();
        let heartbeat_at = Timestamp::default();
        let name = "n".to_owned();

        let host = "h".to_owned();
        NodeRecord {
            id: NodeId(uuid::Uuid::nil()),
            name,
            host,
            started_at,
            heartbeat_at,
            lost_at: None,
            serves: Some(serves),
        }
    }

    fn facts() -> Facts {
        let counts = Counts::from([("QUEUED".to_owned(), 38), ("RUNNING".to_owned(), 4)]);
        Facts {
            now: Timestamp::from_micros(2_000),
            is_store_writable: true,
            paused_at: None,
            is_type_known: true,
            nodes: vec![node(&["q"], &["t"])],
            counts,
            last_error: None,
            ahead: 12,
            full: None,
        }
    }

    #[test]
    fn a_due_task_waits_for_those_ahead() {
        let why = decide(&task(Status::Queued), &facts());
        assert_eq!(
            why,
            Why::InLine {
                queue: queue_name("q"),
                ahead: Ahead::Exactly(12),
                waiting: 37,
                running: 4,
                nodes: 1
            }
        );
    }

    #[test]
    fn the_reason_that_must_be_removed_first_is_given() {
        let not_writable = Facts {
            is_store_writable: false,
            paused_at: Some(Timestamp::default()),
            ..facts()
        };
        let paused = Facts {
            paused_at: Some(Timestamp::default()),
            nodes: vec![],
            ..facts()
        };
        let early = Facts {
            now: Timestamp::default(),
            nodes: vec![],
            ..facts()
        };

        let no_node = Facts {
            nodes: vec![],
            ..facts()
        };
        let other_type = Facts {
            nodes: vec![node(&["q"], &["other"])],
            ..facts()
        };
        let codes = [not_writable, paused, early, no_node, other_type]
            .map(|one| decide(&task(Status::Queued), &one).code());

        assert_eq!(
            codes,
            [
                "store_not_writable",
                "paused",
                "not_due",
                "no_node",
                "no_worker"
            ]
        );
    }

    #[test]
    fn an_unserved_queue_is_given_with_the_served_ones() {
        let nodes = vec![
            node(&["q"], &["other"]),
            node(&["a", "b"], &["t"]),
            node(&["b"], &["t"]),
        ];
        let elsewhere = Facts { nodes, ..facts() };
        let served = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let expected = Why::QueueNotServed {
            queue: queue_name("q"),
            task_type: "t".to_owned(),
            served,
        };

        assert_eq!(decide(&task(Status::Queued), &elsewhere), expected);
    }

    #[test]
    fn a_node_that_does_not_say_what_it_serves_may_serve_what_is_known_here() {
        let silent = NodeRecord {
            serves: None,
            ..node(&[], &[])
        };
        let facts = Facts {
            nodes: vec![silent],
            ..facts()
        };

        assert_eq!(decide(&task(Status::Queued), &facts).code(), "in_line");
        let unknown = Facts {
            is_type_known: false,
            ..facts
        };

        assert_eq!(decide(&task(Status::Queued), &unknown).code(), "no_worker");
    }

    #[test]
    fn every_status_has_a_reason() {
        for status in Status::ALL {
            let code = decide(&task(status), &facts()).code();
            assert_eq!(code == "ended", status.is_ended(), "{status:?} is {code}");
        }
    }

    #[test]
    fn full_slots_are_the_reason_when_there_is_no_other_node() {
        let full = Facts {
            full: Some((4, 4)),
            ahead: MAX_COUNTED,
            ..facts()
        };
        let ahead = Ahead::AtLeast(MAX_COUNTED);
        let expected = Why::SlotsFull {
            queue: queue_name("q"),
            used: 4,
            slots: 4,
            ahead,
        };

        assert_eq!(decide(&task(Status::Queued), &full), expected);
        let two = Facts {
            nodes: vec![node(&["q"], &["t"]), node(&["q"], &["t"])],
            ..full
        };

        assert_eq!(decide(&task(Status::Queued), &two).code(), "in_line");
    }

    #[test]
    fn a_limit_is_given_with_the_seconds_until_the_next_try() {
        let mut limited = task(Status::Retrying);
        limited.due_at = Timestamp::from_micros(12_000_000);
        let after = |class: &str| {
            let error = TaskError::new(class, "no room", None, Timestamp::default(), 1);
            Facts {
                last_error: Some(error),
                ..facts()
            }
        };

        let expected = Why::Limited {
            reason: "no room".to_owned(),
            due_at: limited.due_at,
            in_s: 12,
        };

        assert_eq!(decide(&limited, &after(LIMIT_FULL)), expected);
        assert_eq!(decide(&limited, &after("rate_limited")), expected);
        assert_eq!(decide(&limited, &after("snoozed")).code(), "not_due");
    }
}
