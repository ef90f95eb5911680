//! What the screen knows: the last look, the rates between two looks, and what is chosen.

use std::collections::{HashMap, VecDeque};

use longhaul_api::{
    Moment, NodeView, QueueView, TaskSummary,
    client::{Status, TaskId},
};

/// Looks that the throughput is drawn from: no terminal is wider.
const SAMPLES: usize = 512;

/// One look at a server.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub running: Vec<TaskSummary>,
    pub queues: Vec<QueueView>,
    pub nodes: Vec<NodeView>,
    /// What the caller may not see.
    pub refusal: Option<String>,
    pub now: Moment,
}

/// What keys are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Focus {
    Queues,
    Tasks,
}

/// A queue as it is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueRow {
    pub name: String,
    pub paused: bool,
    pub waiting: i64,
    pub running: i64,
    pub retrying: i64,
    pub failed: i64,
    /// Tasks that ended each second.
    pub rate: f64,
}

/// Everything that is drawn.
#[derive(Debug)]
pub struct Model {
    pub url: String,
    pub has_colours: bool,
    pub queues: Vec<QueueRow>,
    pub nodes: Vec<NodeView>,
    pub now: Moment,
    pub focus: Focus,
    pub chosen_queue: usize,
    pub chosen_task: usize,
    pub filter: String,
    pub is_typing: bool,
    /// Asked whether it is meant.
    pub cancelling: Option<TaskId>,
    /// The last word on the bottom line; it stays until the next key.
    pub note: String,
    /// What the caller may not see.
    pub refusal: String,
    /// Why the last look failed: what is shown is old.
    pub trouble: String,
    /// Tasks that ended each second, the newest last.
    pub throughput: VecDeque<u64>,
    running: Vec<TaskSummary>,
    ended_before: HashMap<String, i64>,
}

impl Model {
    pub fn new(url: &str, has_colours: bool) -> Self {
        Self {
            url: url.to_owned(),
            has_colours,
            queues: Vec::new(),
            nodes: Vec::new(),
            now: Moment::now(),
            focus: Focus::Queues,
            chosen_queue: 0,
            chosen_task: 0,
            filter: String::new(),
            is_typing: false,
            cancelling: None,
            note: String::new(),
            refusal: String::new(),
            trouble: String::new(),
            throughput: VecDeque::new(),
            running: Vec::new(),
            ended_before: HashMap::new(),
        }
    }

    /// Takes over a look that came so long after the one before. The first has no rates.
    pub fn see(&mut self, look: Snapshot, seconds: f64) {
        let rows: Vec<QueueRow> = look
            .queues
            .iter()
            .map(|queue| self.row(queue, seconds))
            .collect();
        self.ended_before = look
            .queues
            .iter()
            .map(|queue| (queue.name.clone(), ended(queue)))
            .collect();
        if seconds > 0.0 {
            let total: f64 = rows.iter().map(|row| row.rate).sum();
            // Rounded and never negative: the cast cannot be wrong.
            self.throughput.push_back(total.round() as u64);
            self.throughput
                .drain(..self.throughput.len().saturating_sub(SAMPLES));
        }
        (self.queues, self.nodes, self.running, self.now) =
            (rows, look.nodes, look.running, look.now);
        self.nodes.sort_by_key(|node| node.lost_at.is_some());
        self.trouble.clear();
        self.refusal = look.refusal.unwrap_or_default();
        self.chosen_queue = self.chosen_queue.min(self.queues.len().saturating_sub(1));
        self.chosen_task = self.chosen_task.min(self.tasks().len().saturating_sub(1));
    }

    /// The running tasks that the filter lets through.
    pub fn tasks(&self) -> Vec<&TaskSummary> {
        let holds = |text: &str| text.to_lowercase().contains(&self.filter.to_lowercase());
        let is_shown = |task: &&TaskSummary| {
            holds(&task.task_type)
                || holds(&task.queue)
                || holds(&task.user_id)
                || holds(&task.task_id.to_string())
        };
        self.running.iter().filter(is_shown).collect()
    }

    pub fn total(&self, count: impl Fn(&QueueRow) -> i64) -> i64 {
        self.queues.iter().map(count).sum()
    }

    fn row(&self, queue: &QueueView, seconds: f64) -> QueueRow {
        let count = |statuses: &[Status]| {
            statuses
                .iter()
                .filter_map(|status| queue.tasks.get(status.as_str()))
                .sum::<i64>()
        };
        // Retention takes ended tasks away; that is no throughput.
        let before = self.ended_before.get(&queue.name).copied().unwrap_or(0);
        let since = (ended(queue) - before).max(0);
        QueueRow {
            name: queue.name.clone(),
            paused: queue.paused,
            waiting: count(&[Status::Queued, Status::Waiting]),
            running: count(&[Status::Running]),
            retrying: count(&[Status::Retrying]),
            failed: count(&[Status::Failed, Status::DeadLetter]),
            rate: if seconds > 0.0 {
                since as f64 / seconds
            } else {
                0.0
            },
        }
    }
}

fn ended(queue: &QueueView) -> i64 {
    let all = Status::ALL.into_iter().filter(|status| status.is_ended());
    all.filter_map(|status| queue.tasks.get(status.as_str()))
        .sum()
}
