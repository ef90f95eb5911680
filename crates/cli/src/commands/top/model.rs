//! What the screen shows: the last snapshot, the rates between two snapshots, and what is chosen.

use std::collections::{HashMap, VecDeque};

use longhaul_api::{
    Moment, NodeView, QueueView, TaskSummary,
    client::{Status, TaskId},
};

/// Rates in the chart of the throughput: no terminal is wider.
const SAMPLES: usize = 512;

/// The state of a server at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub running: Vec<TaskSummary>,
    pub queues: Vec<QueueView>,
    pub nodes: Vec<NodeView>,
    /// Which parts the caller may not see.
    pub refusal: Option<String>,
    pub now: Moment,
}

/// The panel that keys act on.
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
    /// Tasks that ended per second.
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
    /// The task whose cancel waits for a confirmation.
    pub cancelling: Option<TaskId>,
    /// The result of the last action. It is shown until the next key.
    pub note: String,
    /// Which parts the caller may not see.
    pub refusal: String,
    /// Why the last snapshot could not be fetched: the screen is out of date.
    pub failure: String,
    /// Tasks that ended per second, the newest last.
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
            failure: String::new(),
            throughput: VecDeque::new(),
            running: Vec::new(),
            ended_before: HashMap::new(),
        }
    }

    /// Shows a snapshot. `seconds` have passed since the one before; 0 for the first, which has no
    /// rates.
    pub fn apply(&mut self, snapshot: Snapshot, seconds: f64) {
        let queues = snapshot.queues.iter();
        let rows: Vec<QueueRow> = queues.map(|queue| self.row(queue, seconds)).collect();

        if seconds > 0.0 {
            let total: f64 = rows.iter().map(|row| row.rate).sum();
            // The rates are never negative, so the cast is exact after rounding.
            self.throughput.push_back(total.round() as u64);
            self.throughput
                .drain(..self.throughput.len().saturating_sub(SAMPLES));
        }

        self.ended_before.clear();
        for queue in &snapshot.queues {
            self.ended_before.insert(queue.name.clone(), ended(queue));
        }

        self.queues = rows;
        self.nodes = snapshot.nodes;
        self.nodes.sort_by_key(|node| node.lost_at.is_some());
        self.running = snapshot.running;
        self.now = snapshot.now;
        self.failure.clear();
        self.refusal = snapshot.refusal.unwrap_or_default();

        // The lists may be shorter now.
        self.chosen_queue = self.chosen_queue.min(self.queues.len().saturating_sub(1));
        self.chosen_task = self.chosen_task.min(self.tasks().len().saturating_sub(1));
    }

    /// The running tasks that match the filter.
    pub fn tasks(&self) -> Vec<&TaskSummary> {
        let filter = self.filter.to_lowercase();
        let holds = |text: &str| text.to_lowercase().contains(&filter);
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
        // Retention deletes ended tasks; the count that is lost is not a negative rate.
        let before = self.ended_before.get(&queue.name).copied().unwrap_or(0);
        let since = (ended(queue) - before).max(0);
        let rate = if seconds > 0.0 {
            since as f64 / seconds
        } else {
            0.0
        };

        QueueRow {
            name: queue.name.clone(),
            paused: queue.paused,
            waiting: count(queue, [Status::Queued, Status::Waiting]),
            running: count(queue, [Status::Running]),
            retrying: count(queue, [Status::Retrying]),
            failed: count(queue, [Status::Failed, Status::DeadLetter]),
            rate,
        }
    }
}

fn ended(queue: &QueueView) -> i64 {
    count(
        queue,
        Status::ALL.into_iter().filter(|status| status.is_ended()),
    )
}

fn count(queue: &QueueView, statuses: impl IntoIterator<Item = Status>) -> i64 {
    statuses
        .into_iter()
        .filter_map(|status| queue.tasks.get(status.as_str()))
        .sum()
}
