//! The metrics of a process, under the names that dashboards and alerts use.
//!
//! Counters and histograms are updated where things happen, through cached handles. Gauges are read
//! at each scrape, from counts that the store maintains anyway. Labels are bounded: task types are
//! those that this process knows, and other names that users choose count as `other` from the 201st
//! on. No label is an id or an owner.

mod broker;
mod events;
mod gauges;
mod handles;
mod process;
pub mod registry;
mod stored;

use std::collections::HashMap;
use std::time::Duration;

use longhaul_domain::{Status, TaskRecord};
use parking_lot::Mutex;
use prometheus_client::metrics::{counter::Counter, histogram::Histogram};

use crate::catalog::Catalog;
use broker::BrokerMetrics;
use events::EventMetrics;
pub use events::Listener;
use gauges::Gauges;
pub(crate) use gauges::ScrapeSnapshot;
use handles::{Bounded, OfType, TypeFamilies};
pub use handles::{NAMES, OTHER};
use registry::{Description, Format, Kind, MetricRegistry};
pub(crate) use stored::StoreMetrics;

/// Seconds: from a millisecond for quick tasks to ten hours for long ones.
fn task_seconds() -> Histogram {
    Histogram::new([
        0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0,
        36_000.0,
    ])
}

/// All metrics of a process.
#[derive(Debug)]
pub struct Metrics {
    /// Locked while a scrape sets the gauges and writes the text, so that two scrapes do not mix.
    /// Never held across an await.
    registry: Mutex<MetricRegistry>,
    types: HashMap<String, OfType>,
    other: OfType,
    queue_wait: Bounded<Histogram>,
    throttled: Bounded<Counter>,
    rescued: Counter,
    pub(crate) events: EventMetrics,
    pub(crate) store: StoreMetrics,
    pub(crate) broker: BrokerMetrics,
    gauges: Gauges,
}

impl Metrics {
    /// The metrics of a process that knows these task types.
    pub fn for_catalog(catalog: &Catalog) -> Self {
        Self::new(catalog.types().map(|definition| definition.name.as_str()))
    }

    /// The metrics of a process. Types that are not named are counted as `other`.
    pub fn new<'a>(task_types: impl IntoIterator<Item = &'a str>) -> Self {
        let mut registry = MetricRegistry::default();
        let families = type_families(&mut registry);
        let queue_wait = registry.histograms(
            "tasks_queue_wait_seconds",
            ["queue"],
            "From due to the start of an attempt on this node",
            task_seconds,
        );

        let throttled = registry.counters(
            "tasks_ratelimit_throttled",
            ["key"],
            "Attempts on this node that a rate limit put back, by the key of the limit",
        );
        let rescued = registry.single(
            "tasks_zombies_rescued",
            Kind::Counter,
            "Tasks that this node took from nodes that died, including those that it quarantined",
        );

        let events = EventMetrics::new(&mut registry);
        let store = StoreMetrics::new(&mut registry);
        let broker = BrokerMetrics::new(&mut registry);
        let gauges = Gauges::new(&mut registry);

        Self {
            other: families.of(OTHER),
            types: task_types
                .into_iter()
                .map(|name| (name.to_owned(), families.of(name)))
                .collect(),
            queue_wait: Bounded::new(queue_wait),
            throttled: Bounded::new(throttled),
            rescued,
            events,
            store,
            broker,
            gauges,
            registry: Mutex::new(registry),
        }
    }
}

fn type_families(registry: &mut MetricRegistry) -> TypeFamilies {
    TypeFamilies {
        submitted: registry.counters(
            "tasks_submitted",
            ["task_type"],
            "Tasks that were made through \
             this process",
        ),
        children: registry.counters(
            "tasks_subtasks_created",
            ["task_type"],
            "Tasks that a running task submitted through this process, by the type of the child",
        ),
        retries: registry.counters(
            "tasks_retries",
            ["task_type"],
            "Attempts on this node that failed and are retried",
        ),
        dead_letters: registry.counters(
            "tasks_dlq_entered",
            ["task_type"],
            "Tasks that became dead letters: retries used up, or quarantined after too many \
             crashes",
        ),
        finished: registry.counters(
            "tasks_finished",
            ["task_type", "status"],
            "Tasks that this process ended, by their last status",
        ),
        execution: registry.histograms(
            "tasks_execution_seconds",
            ["task_type", "status"],
            "How long an attempt ran on this node, by the status of its task afterwards",
            task_seconds,
        ),
    }
}

impl Metrics {
    pub(crate) fn of_type(&self, task_type: &str) -> &OfType {
        self.types.get(task_type).unwrap_or(&self.other)
    }

    /// Counts `n` new tasks of one type, of which `children` are children.
    pub(crate) fn submitted(&self, task_type: &str, n: u64, children: u64) {
        if n == 0 {
            return;
        }

        let of_type = self.of_type(task_type);
        of_type.submitted.inc_by(n);
        if children > 0 {
            of_type.children.inc_by(children);
        }
    }

    /// Counts a claim of this node.
    pub fn claimed(&self, task: &TaskRecord) {
        if let Some(started) = task.last_attempt_at {
            let wait = Duration::from_micros(started.micros_since(task.waits_since()));
            self.queue_wait.get(&task.queue).observe(wait.as_secs_f64());
        }
    }

    /// Counts an attempt that ran for this long and left its task at this status.
    pub(crate) fn ran(&self, task_type: &str, status: Status, ran: Duration) {
        self.of_type(task_type)
            .execution
            .get(status)
            .observe(ran.as_secs_f64());
    }

    /// Counts the ends of `n` tasks of one type.
    pub(crate) fn ended(&self, task_type: &str, status: Status, n: u64) {
        if n == 0 {
            return;
        }

        let of_type = self.of_type(task_type);
        of_type.finished.get(status).inc_by(n);
        if status == Status::DeadLetter {
            of_type.dead_letters.inc_by(n);
        }
    }

    /// Counts an attempt that a rate limit put back.
    pub fn throttled(&self, key: &str) {
        self.throttled.get(key).inc();
    }

    /// Counts hints that the dispatcher published, of which `repeated` had been published before.
    pub fn hints_published(&self, hints: usize, repeated: usize) {
        self.broker.published(hints);
        self.broker.republished(repeated);
    }

    pub(crate) fn rescued(&self, tasks: usize) {
        self.rescued.inc_by(tasks as u64);
    }

    /// Registers metrics of a component above the engine.
    pub fn add<R>(&self, register: impl FnOnce(&mut MetricRegistry) -> R) -> R {
        register(&mut self.registry.lock())
    }

    /// Every registered metric, in the order of registration.
    pub fn described(&self) -> Vec<Description> {
        self.registry.lock().described().to_vec()
    }

    /// All metrics as text, with the gauges that a scrape has read.
    pub(crate) fn text(
        &self,
        snapshot: &ScrapeSnapshot,
        format: Format,
    ) -> Result<String, std::fmt::Error> {
        let registry = self.registry.lock();
        self.gauges.show(snapshot);
        registry.text(format)
    }
}

pub(crate) fn process_snapshot() -> process::ProcessSnapshot {
    process::ProcessSnapshot::look()
}
