//! The gauges: what is read at the moment of a scrape.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use longhaul_domain::{
    node::NodeRecord,
    statistics::{Measure, TaskCount},
};
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};

use super::{
    handles::{NAMES, OTHER},
    process::ProcessSnapshot,
    registry::{Kind, MetricFamily, MetricRegistry},
};

/// Seconds are fractions.
type Fraction = Gauge<f64, AtomicU64>;

/// What a scrape has read. What could not be read is absent, and not shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScrapeSnapshot {
    pub(crate) is_store_up: bool,
    pub(crate) task_counts: Vec<TaskCount>,
    pub(crate) nodes: Vec<NodeRecord>,
    pub(crate) oldest_waiting_s: f64,
    pub(crate) most_silent_s: f64,
    pub(crate) outbox: Option<u64>,
    /// How far the store's clock is ahead, if it is that of this process.
    pub(crate) clock_lead_s: f64,
    /// The used and all slots of the local node.
    pub(crate) slots: Option<(usize, usize)>,
    pub(crate) process: ProcessSnapshot,
}

#[derive(Debug)]
pub(crate) struct Gauges {
    queue_size: MetricFamily<Gauge, 2>,
    store_up: Gauge,
    oldest_waiting: Fraction,
    nodes_alive: Gauge,
    workers_alive: Gauge,
    most_silent: Fraction,
    outbox: MetricFamily<Gauge, 0>,
    clock_lead: Fraction,
    slots_used: MetricFamily<Gauge, 0>,
    slots_offered: MetricFamily<Gauge, 0>,
    resident: MetricFamily<Gauge, 0>,
    open_files: MetricFamily<Gauge, 0>,
    cpu: Counter<f64, AtomicU64>,
}

impl Gauges {
    pub(crate) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            queue_size: registry.gauges(
                "tasks_queue_size",
                ["queue", "status"],
                "Tasks of the whole store by queue and present status; from the 201st queue on, \
                 queues are `other`",
            ),
            store_up: registry.single(
                "tasks_store_up",
                Kind::Gauge,
                "Whether this process can read and write the store: 1 or 0",
            ),
            oldest_waiting: registry.single(
                "tasks_oldest_waiting_seconds",
                Kind::Gauge,
                "How long the longest waiting task of the whole store has been due; 0 when none \
                 waits",
            ),
            nodes_alive: registry.single(
                "tasks_nodes_alive",
                Kind::Gauge,
                "Nodes that are not declared dead",
            ),
            workers_alive: registry.single(
                "tasks_workers_alive",
                Kind::Gauge,
                "Nodes that are not declared dead and run tasks",
            ),
            most_silent: registry.single(
                "tasks_oldest_lease_seconds",
                Kind::Gauge,
                "Seconds since the last heartbeat of the most silent node that is not declared \
                 dead",
            ),
            outbox: registry.gauges(
                "tasks_outbox_pending",
                [],
                "Outbox messages of the whole store that wait to be published; counting stops at \
                 100,000",
            ),
            clock_lead: registry.single(
                "tasks_store_clock_lead_seconds",
                Kind::Gauge,
                "How far the clock of the embedded store is ahead of the machine's, because that \
                 one was set back; 0 on a database server",
            ),
            slots_used: registry.gauges("tasks_slots_used", [], "Tasks that run on this node"),
            slots_offered: registry.gauges(
                "tasks_slots_offered",
                [],
                "Tasks that this node runs at \
                 once at most",
            ),
            resident: registry.gauges(
                "process_resident_memory_bytes",
                [],
                "Memory of this process",
            ),
            open_files: registry.gauges(
                "process_open_fds",
                [],
                "Files and sockets that this process \
                 has open",
            ),
            cpu: registry.single(
                "process_cpu_seconds",
                Kind::Counter,
                "Processor time of this process",
            ),
        }
    }

    pub(crate) fn show(&self, snapshot: &ScrapeSnapshot) {
        self.store_up.set(i64::from(snapshot.is_store_up));
        self.oldest_waiting.set(snapshot.oldest_waiting_s);
        self.most_silent.set(snapshot.most_silent_s);

        let nodes = snapshot.nodes.iter();
        let alive = nodes.clone().filter(|node| node.lost_at.is_none()).count();
        let at_work = nodes.filter(|node| node.is_at_work()).count();
        self.nodes_alive.set(whole(alive));
        self.workers_alive.set(whole(at_work));

        self.queue_size.clear();
        for ((queue, status), n) in queue_sizes(&snapshot.task_counts) {
            self.queue_size.get([queue, status]).set(n);
        }

        let outbox = snapshot.outbox.and_then(|count| i64::try_from(count).ok());
        show(&self.outbox, outbox);
        self.clock_lead.set(snapshot.clock_lead_s);
        let slots_used = snapshot.slots.map(|(used, _)| whole(used));
        let slots_offered = snapshot.slots.map(|(_, offered)| whole(offered));
        show(&self.slots_used, slots_used);
        show(&self.slots_offered, slots_offered);

        show(&self.resident, snapshot.process.resident_bytes);
        show(&self.open_files, snapshot.process.open_files);
        if let Some(seconds) = snapshot.process.cpu_seconds {
            self.cpu.inc_by((seconds - self.cpu.get()).max(0.0));
        }
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn show(gauge: &MetricFamily<Gauge, 0>, value: Option<i64>) {
    gauge.clear();
    if let Some(value) = value {
        gauge.get([]).set(value);
    }
}

/// Tasks by queue and status. A submit can make any queue by naming it, so only the first ones by
/// name have series of their own.
fn queue_sizes(task_counts: &[TaskCount]) -> BTreeMap<(&str, &str), i64> {
    let mut sizes: BTreeMap<&str, BTreeMap<&str, i64>> = BTreeMap::new();
    for TaskCount { key, n } in task_counts {
        if key.measure == Measure::Status {
            let of_queue = sizes.entry(&key.queue).or_default();
            *of_queue.entry(&key.label).or_default() += n;
        }
    }

    let mut bounded = BTreeMap::new();
    for (index, (queue, by_status)) in sizes.into_iter().enumerate() {
        let queue = if index < NAMES { queue } else { OTHER };
        for (status, n) in by_status {
            *bounded.entry((queue, status)).or_default() += n;
        }
    }

    bounded
}

#[cfg(test)]
mod tests {
    use longhaul_domain::statistics::CountKey;

    use super::*;

    #[test]
    fn queues_past_the_bound_share_one_series() {
        let task_count = |queue: String, n| {
            let task_type = "t".to_owned();
            let label = "QUEUED".to_owned();
            TaskCount {
                key: CountKey {
                    span_start: 0,
                    queue,
                    task_type,
                    measure: Measure::Status,
                    label,
                    bucket: 0,
                },
                n,
            }
        };

        let task_counts: Vec<TaskCount> = (0..NAMES + 10)
            .map(|n| task_count(format!("queue {n:04}"), 2))
            .collect();
        let sizes = queue_sizes(&task_counts);
        assert_eq!(sizes.len(), NAMES + 1);
        assert_eq!(
            (
                sizes[&("queue 0000", "QUEUED")],
                sizes[&("other", "QUEUED")]
            ),
            (2, 20)
        );
    }
}
