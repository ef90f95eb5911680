//! Cached handles, so that counting a task allocates nothing, and bounded labels.

use std::collections::HashMap;
use std::sync::OnceLock;

use longhaul_domain::Status;
use parking_lot::RwLock;
use prometheus_client::metrics::{counter::Counter, histogram::Histogram};

use super::registry::MetricFamily;

/// The label of a name that is unknown or beyond the bound.
pub const OTHER: &str = "other";
/// Different names of one label. Each series costs a scraper some kilobytes.
pub const NAMES: usize = 200;

/// Handles by a name that users choose. The first names get a series each; all others share one.
#[derive(Debug)]
pub(crate) struct Bounded<M> {
    many: MetricFamily<M, 1>,
    handles: RwLock<HashMap<String, M>>,
}

impl<M: Clone> Bounded<M> {
    pub(crate) fn new(many: MetricFamily<M, 1>) -> Self {
        Self {
            many,
            handles: RwLock::default(),
        }
    }

    pub(crate) fn get(&self, name: &str) -> M {
        if let Some(handle) = self.handles.read().get(name) {
            return handle.clone();
        }

        let mut handles = self.handles.write();
        if handles.len() >= NAMES {
            return self.many.get([OTHER]);
        }
        handles
            .entry(name.to_owned())
            .or_insert_with(|| self.many.get([name]))
            .clone()
    }
}

/// One handle for each status. It is made when it is first used, so that unused series are not
/// shown.
#[derive(Debug)]
pub(crate) struct ByStatus<M> {
    many: MetricFamily<M, 2>,
    task_type: String,
    handles: [OnceLock<M>; Status::ALL.len()],
}

impl<M: Clone> ByStatus<M> {
    fn new(many: &MetricFamily<M, 2>, task_type: &str) -> Self {
        Self {
            many: many.clone(),
            task_type: task_type.to_owned(),
            handles: Default::default(),
        }
    }

    pub(crate) fn get(&self, status: Status) -> &M {
        self.handles[status as usize]
            .get_or_init(|| self.many.get([&self.task_type, status.as_str()]))
    }
}

/// The metrics with a series for each type.
#[derive(Debug)]
pub(crate) struct TypeFamilies {
    pub(crate) submitted: MetricFamily<Counter, 1>,
    pub(crate) children: MetricFamily<Counter, 1>,
    pub(crate) retries: MetricFamily<Counter, 1>,
    pub(crate) dead_letters: MetricFamily<Counter, 1>,
    pub(crate) finished: MetricFamily<Counter, 2>,
    pub(crate) execution: MetricFamily<Histogram, 2>,
}

/// The handles of one type.
#[derive(Debug)]
pub(crate) struct OfType {
    pub(crate) submitted: Counter,
    pub(crate) children: Counter,
    pub(crate) retries: Counter,
    pub(crate) dead_letters: Counter,
    pub(crate) finished: ByStatus<Counter>,
    pub(crate) execution: ByStatus<Histogram>,
}

impl TypeFamilies {
    pub(crate) fn of(&self, task_type: &str) -> OfType {
        OfType {
            submitted: self.submitted.get([task_type]),
            children: self.children.get([task_type]),
            retries: self.retries.get([task_type]),
            dead_letters: self.dead_letters.get([task_type]),
            finished: ByStatus::new(&self.finished, task_type),
            execution: ByStatus::new(&self.execution, task_type),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::registry::{Format, MetricRegistry};

    #[test]
    fn names_past_the_bound_share_one_series() {
        let mut registry = MetricRegistry::default();
        let bounded = Bounded::new(registry.counters("seen", ["key"], "Seen"));
        for n in 0..NAMES + 50 {
            bounded.get(&format!("key {n}")).inc();
        }

        bounded.get("key 7").inc();
        let text = registry.text(Format::Plain).unwrap();
        assert_eq!(text.matches("seen_total{").count(), NAMES + 1);
        assert!(
            text.contains("seen_total{key=\"key 7\"} 2\n")
                && text.contains("seen_total{key=\"other\"} 50\n")
        );
    }
}
