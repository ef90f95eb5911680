//! What is measured, under the names that dashboards and alerts know (R47).
//!
//! Counters and histograms are written where things happen, by handles that are kept. Gauges are read when somebody
//! scrapes, from what the store counts anyway. Labels are bounded: types are those that this process knows, and other
//! names of users' choice are counted as `other` from the 201st on. No label is an id or an owner.

pub mod book;
mod broker;
mod events;
mod gauges;
mod handles;
mod process;
mod stored;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use longhaul_domain::{Status, Task};
use prometheus_client::metrics::{counter::Counter, histogram::Histogram};

use book::{Book, Description, Format, Kind};
use broker::BrokerMetrics;
use events::EventMetrics;
pub use events::Listener;
use gauges::Gauges;
pub(crate) use gauges::Sight;
use handles::{Bounded, OfType, TypeFamilies};
pub use handles::{NAMES, OTHER};
pub(crate) use stored::StoreMetrics;
pub use stored::StoreOperation;

/// Seconds: from a millisecond, where most tasks are quick, to ten hours, which a long one takes.
fn task_seconds() -> Histogram {
    Histogram::new([
        0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0,
        36_000.0,
    ])
}

/// Everything that is measured in a process.
#[derive(Debug)]
pub struct Metrics {
    book: Mutex<Book>,
    families: TypeFamilies,
    types: OnceLock<HashMap<String, OfType>>,
    other: OfType,
    queue_wait: Bounded<Histogram>,
    throttled: Bounded<Counter>,
    rescued: Counter,
    pub(crate) events: EventMetrics,
    pub(crate) store: StoreMetrics,
    pub(crate) broker: BrokerMetrics,
    gauges: Gauges,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut book = Book::default();
        let families = type_families(&mut book);
        let queue_wait = book.histograms(
            "tasks_queue_wait_seconds",
            ["queue"],
            "From due to the start of an attempt on this node",
            task_seconds,
        );
        let throttled = book.counters(
            "tasks_ratelimit_throttled",
            ["key"],
            "Attempts on this node that a rate limit put back, by the key of the limit",
        );
        let rescued = book.single(
            "tasks_zombies_rescued",
            Kind::Counter,
            "Tasks that this node took from nodes that died, those that it quarantined among them",
        );
        let (events, store) = (EventMetrics::new(&mut book), StoreMetrics::new(&mut book));
        let (broker, gauges) = (BrokerMetrics::new(&mut book), Gauges::new(&mut book));
        Self {
            other: families.of(OTHER),
            families,
            types: OnceLock::new(),
            queue_wait: Bounded::new(queue_wait),
            throttled: Bounded::new(throttled),
            rescued,
            events,
            store,
            broker,
            gauges,
            book: Mutex::new(book),
        }
    }
}

fn type_families(book: &mut Book) -> TypeFamilies {
    TypeFamilies {
        submitted: book.counters("tasks_submitted", ["task_type"], "Tasks that were made through this process"),
        children: book.counters(
            "tasks_subtasks_created",
            ["task_type"],
            "Those of them that a running task submitted, by the type of the child",
        ),
        retries: book.counters(
            "tasks_retries",
            ["task_type"],
            "Attempts on this node that failed and are followed by another one",
        ),
        dead_letters: book.counters(
            "tasks_dlq_entered",
            ["task_type"],
            "Tasks that became dead letters: retries used up, or quarantined after too many crashes",
        ),
        finished: book.counters(
            "tasks_finished",
            ["task_type", "status"],
            "Tasks that this process brought to their end, by the status of the end",
        ),
        execution: book.histograms(
            "tasks_execution_seconds",
            ["task_type", "status"],
            "How long an attempt ran on this node, by the status that it left its task with",
            task_seconds,
        ),
    }
}

impl Metrics {
    /// Names the types of this process. Until then, and for all others, types are counted as `other`.
    pub fn know_types<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let known = names
            .into_iter()
            .map(|name| (name.to_owned(), self.families.of(name)))
            .collect();
        if self.types.set(known).is_err() {
            tracing::debug!("the types of the metrics were named before");
        }
    }

    pub(crate) fn of_type(&self, task_type: &str) -> &OfType {
        self.types
            .get()
            .and_then(|types| types.get(task_type))
            .unwrap_or(&self.other)
    }

    /// Tasks were made, `n` of one type.
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

    /// This node claimed a task.
    pub fn claimed(&self, task: &Task) {
        if let Some(started) = task.last_attempt_at {
            let wait = Duration::from_micros(started.micros_since(task.waits_since()));
            self.queue_wait.get(&task.queue).observe(wait.as_secs_f64());
        }
    }

    /// An attempt ran so long and left its task like this.
    pub(crate) fn ran(&self, task_type: &str, status: Status, ran: Duration) {
        self.of_type(task_type)
            .execution
            .get(status)
            .observe(ran.as_secs_f64());
    }

    /// Tasks of one type have ended, `n` of them.
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

    /// A rate limit put an attempt back.
    pub fn throttled(&self, key: &str) {
        self.throttled.get(key).inc();
    }

    pub(crate) fn rescued(&self, tasks: usize) {
        self.rescued.inc_by(tasks as u64);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds metrics of whoever stands above the engine.
    pub fn add<R>(&self, register: impl FnOnce(&mut Book) -> R) -> R {
        register(&mut self.book())
    }

    /// Every metric that there is, in the order of the book.
    pub fn described(&self) -> Vec<Description> {
        self.book().described().to_vec()
    }

    /// All of it as text, with gauges as they were seen.
    pub(crate) fn text(&self, sight: &Sight, format: Format) -> Result<String, std::fmt::Error> {
        let book = self.book();
        self.gauges.show(sight);
        book.text(format)
    }
}

pub(crate) fn process_sight() -> process::ProcessSight {
    process::ProcessSight::look()
}
