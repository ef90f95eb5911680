//! Why a task is not running yet: one reason, in a sentence, with its facts.

use std::collections::BTreeSet;

use longhaul_domain::{
    Node, Serves, Status, StoreError, Task, TaskError, TaskId, Timestamp, contract::store::Access,
    queue::Queue, statistics::TallyFilter,
};

use super::census::{Counts, count};
use crate::Engine;

/// What a task waits for. The first that holds is the one that is told.
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
    /// Its own code has returned; children have not ended.
    WaitsForChildren { open: u32, total: u32 },
    /// Its queue is paused.
    Paused { queue: String, since: Timestamp },
    /// It is not due.
    NotDue { due_at: Timestamp, status: Status },
    /// Nobody runs tasks.
    NoNode,
    /// No node runs the type.
    NoWorker { task_type: String },
    /// Nodes run the type, and take none of it from the queue.
    QueueNotServed {
        queue: String,
        task_type: String,
        served: BTreeSet<String>,
    },
    /// A rate limit put it back; it is tried again when the limit has room.
    Limited {
        reason: String,
        due_at: Timestamp,
        in_s: u64,
    },
    /// It is due, and the only node has no slot for it.
    SlotsFull {
        queue: String,
        used: usize,
        slots: usize,
        ahead: Ahead,
    },
    /// It is due, and others are too.
    InLine {
        queue: String,
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
    /// Counting stopped.
    AtLeast(usize),
}

/// Tasks that are counted for one answer: some milliseconds of a store's time.
const COUNTED: usize = 1_000;

/// The class of a snooze because a limit had no room in time.
pub const LIMIT_FULL: &str = "limit_full";
/// The class of a provider's refusal.
const RATE_LIMITED: &str = "rate_limited";

impl Why {
    /// For programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Ended { .. } => "ended",
            Self::Running { .. } => "running",
            Self::WaitsForChildren { .. } => "waits_for_children",
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

/// What is known around a task when the question is asked.
#[derive(Debug, Clone)]
struct Surroundings {
    now: Timestamp,
    paused_at: Option<Timestamp>,
    /// Whether this process knows the type.
    is_type_known: bool,
    /// Those that run tasks.
    nodes: Vec<Node>,
    /// Of the task's queue.
    counts: Counts,
    /// What a task that put itself back said.
    last_error: Option<TaskError>,
    ahead: usize,
    /// Used slots and all of this process's node, if it serves the task and none is free.
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
        let is_queue = |queue: &Queue| queue.name == task.queue;
        let tallies = self.store.read_tallies(&TallyFilter::default()).await?;
        let now = self.store.now().await?;
        let is_in_line = task.status.is_claimable() && task.due_at <= now;
        let is_put_back =
            task.status == Status::Retrying && task.snooze_count > 0 && task.attempt > 0;
        let last = match is_put_back {
            true => self
                .store
                .list_attempts(access, id, task.attempt - 1, 1)
                .await?
                .pop(),
            false => None,
        };
        let around = Surroundings {
            now,
            last_error: last.and_then(|attempt| attempt.error),
            ahead: if is_in_line {
                self.store.count_ahead(&task, now, COUNTED).await?
            } else {
                0
            },
            full: self.full_slots(&task),
            paused_at: self
                .store
                .list_queues()
                .await?
                .into_iter()
                .find(is_queue)
                .and_then(|queue| queue.paused_at),
            is_type_known: knows(&task.task_type),
            nodes: self
                .store
                .list_nodes()
                .await?
                .into_iter()
                .filter(Node::is_at_work)
                .collect(),
            counts: count(&tallies, |tally| tally.key.queue == task.queue),
        };
        Ok(decide(&task, &around))
    }

    fn full_slots(&self, task: &Task) -> Option<(usize, usize)> {
        let node = self.local_node()?;
        let is_full = node.has_room(&task.queue, &task.task_type) == Some(false);
        is_full
            .then(|| node.slots())
            .filter(|(_, slots)| *slots > 0)
    }
}

fn decide(task: &Task, around: &Surroundings) -> Why {
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
        Status::Queued | Status::Retrying => decide_waiting(task, around),
    }
}

fn decide_waiting(task: &Task, around: &Surroundings) -> Why {
    if let Some(since) = around.paused_at {
        return Why::Paused {
            queue: task.queue.clone(),
            since,
        };
    }
    if task.due_at > around.now {
        if let Some(reason) = limit_of(around) {
            let in_s = task.due_at.micros_since(around.now).div_ceil(1_000_000);
            return Why::Limited {
                reason,
                due_at: task.due_at,
                in_s,
            };
        }
        return Why::NotDue {
            due_at: task.due_at,
            status: task.status,
        };
    }
    if let Some(why) = not_served(task, around) {
        return why;
    }
    let ahead = if around.ahead < COUNTED {
        Ahead::Exactly(around.ahead)
    } else {
        Ahead::AtLeast(COUNTED)
    };
    if let (1, Some((used, slots))) = (around.nodes.len(), around.full) {
        return Why::SlotsFull {
            queue: task.queue.clone(),
            used,
            slots,
            ahead,
        };
    }
    let n = |status: Status| around.counts.get(status.as_str()).copied().unwrap_or(0);
    let waiting = n(Status::Queued) + n(Status::Retrying) - 1;
    let (running, nodes) = (n(Status::Running), around.nodes.len());
    Why::InLine {
        queue: task.queue.clone(),
        ahead,
        waiting: waiting.max(0),
        running,
        nodes,
    }
}

/// Why no node would take it, if none would. One that does not say what it runs may well run what this process knows.
fn not_served(task: &Task, around: &Surroundings) -> Option<Why> {
    if around.nodes.is_empty() {
        return Some(Why::NoNode);
    }
    if around.is_type_known && around.nodes.iter().any(|node| node.serves.is_none()) {
        return None;
    }
    let all = around.nodes.iter().filter_map(|node| node.serves.as_ref());
    let of_type: Vec<&Serves> = all
        .filter(|serves| serves.task_types.contains(&task.task_type))
        .collect();
    if of_type.is_empty() {
        return Some(Why::NoWorker {
            task_type: task.task_type.clone(),
        });
    }
    let served: BTreeSet<String> = of_type
        .iter()
        .flat_map(|serves| &serves.queues)
        .cloned()
        .collect();
    (!served.contains(&task.queue)).then(|| Why::QueueNotServed {
        queue: task.queue.clone(),
        task_type: task.task_type.clone(),
        served,
    })
}

/// What a limit said when it put the task back.
fn limit_of(around: &Surroundings) -> Option<String> {
    let error = around.last_error.as_ref()?;
    matches!(error.class.as_str(), LIMIT_FULL | RATE_LIMITED).then(|| error.message.clone())
}

#[cfg(test)]
mod tests {
    use longhaul_domain::{Json, NewTask, NodeId, lifecycle::submit};

    use super::*;

    fn task(status: Status) -> Task {
        let new = NewTask::new("u-1", "t", "q", Json::trusted("null".to_owned()));
        let id = longhaul_domain::TaskIdSequence::default().next_id(Timestamp::default(), 1);
        Task {
            status,
            ..submit::decide(&new, id, Timestamp::from_micros(1_000))
                .unwrap()
                .after
        }
    }

    fn node(queues: &[&str], task_types: &[&str]) -> Node {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let serves = Serves {
            queues: names(queues),
            task_types: names(task_types),
            slots: 4,
        };
        let (started_at, heartbeat_at) = (Timestamp::default(), Timestamp::default());
        let (name, host) = ("n".to_owned(), "h".to_owned());
        Node {
            id: NodeId(uuid::Uuid::nil()),
            name,
            host,
            started_at,
            heartbeat_at,
            lost_at: None,
            serves: Some(serves),
        }
    }

    fn around() -> Surroundings {
        let counts = Counts::from([("QUEUED".to_owned(), 38), ("RUNNING".to_owned(), 4)]);
        Surroundings {
            now: Timestamp::from_micros(2_000),
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
    fn a_due_task_stands_in_line() {
        let told = decide(&task(Status::Queued), &around());
        assert_eq!(
            told,
            Why::InLine {
                queue: "q".to_owned(),
                ahead: Ahead::Exactly(12),
                waiting: 37,
                running: 4,
                nodes: 1
            }
        );
    }

    #[test]
    fn the_reason_that_must_go_first_is_told_first() {
        let paused = Surroundings {
            paused_at: Some(Timestamp::default()),
            nodes: vec![],
            ..around()
        };
        let early = Surroundings {
            now: Timestamp::default(),
            nodes: vec![],
            ..around()
        };
        let lonely = Surroundings {
            nodes: vec![],
            ..around()
        };
        let strange = Surroundings {
            nodes: vec![node(&["q"], &["other"])],
            ..around()
        };
        let told =
            [paused, early, lonely, strange].map(|one| decide(&task(Status::Queued), &one).code());
        assert_eq!(told, ["paused", "not_due", "no_node", "no_worker"]);
    }

    #[test]
    fn a_queue_that_no_node_of_the_type_serves_is_told_with_those_that_are() {
        let nodes = vec![
            node(&["q"], &["other"]),
            node(&["a", "b"], &["t"]),
            node(&["b"], &["t"]),
        ];
        let elsewhere = Surroundings { nodes, ..around() };
        let served = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let told = Why::QueueNotServed {
            queue: "q".to_owned(),
            task_type: "t".to_owned(),
            served,
        };
        assert_eq!(decide(&task(Status::Queued), &elsewhere), told);
    }

    #[test]
    fn a_node_that_does_not_say_what_it_runs_may_run_what_is_known_here() {
        let silent = Node {
            serves: None,
            ..node(&[], &[])
        };
        let around = Surroundings {
            nodes: vec![silent],
            ..around()
        };
        assert_eq!(decide(&task(Status::Queued), &around).code(), "in_line");
        let unknown = Surroundings {
            is_type_known: false,
            ..around
        };
        assert_eq!(decide(&task(Status::Queued), &unknown).code(), "no_worker");
    }

    #[test]
    fn every_status_has_a_reason() {
        for status in Status::ALL {
            let code = decide(&task(status), &around()).code();
            assert_eq!(code == "ended", status.is_ended(), "{status:?} is {code}");
        }
    }

    #[test]
    fn full_slots_are_told_when_there_is_no_other_node() {
        let full = Surroundings {
            full: Some((4, 4)),
            ahead: COUNTED,
            ..around()
        };
        let ahead = Ahead::AtLeast(COUNTED);
        let told = Why::SlotsFull {
            queue: "q".to_owned(),
            used: 4,
            slots: 4,
            ahead,
        };
        assert_eq!(decide(&task(Status::Queued), &full), told);
        let two = Surroundings {
            nodes: vec![node(&["q"], &["t"]), node(&["q"], &["t"])],
            ..full
        };
        assert_eq!(decide(&task(Status::Queued), &two).code(), "in_line");
    }

    #[test]
    fn a_limit_is_told_with_the_seconds_until_it_is_tried_again() {
        let mut limited = task(Status::Retrying);
        limited.due_at = Timestamp::from_micros(12_000_000);
        let said = |class: &str| {
            let error = TaskError::new(class, "no room", None, Timestamp::default(), 1);
            Surroundings {
                last_error: Some(error),
                ..around()
            }
        };
        let told = Why::Limited {
            reason: "no room".to_owned(),
            due_at: limited.due_at,
            in_s: 12,
        };
        assert_eq!(decide(&limited, &said(LIMIT_FULL)), told);
        assert_eq!(decide(&limited, &said("rate_limited")), told);
        assert_eq!(decide(&limited, &said("snoozed")).code(), "not_due");
    }
}
