//! Task events, counted when they are published and when a listener has processed them.

use std::sync::OnceLock;

use longhaul_domain::event::EventKind;
use prometheus_client::metrics::counter::Counter;

use super::{
    Metrics,
    registry::{MetricFamily, MetricRegistry},
};

/// Room for all kinds of events.
const KINDS: usize = 16;

/// Processes events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// The streams of clients.
    Live,
    /// The hooks of task types.
    Hooks,
}

impl Listener {
    const ALL: [Self; 2] = [Self::Live, Self::Hooks];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Hooks => "hooks",
        }
    }
}

#[derive(Debug)]
pub(crate) struct EventMetrics {
    published: MetricFamily<Counter, 1>,
    processed: MetricFamily<Counter, 2>,
    published_handles: [OnceLock<Counter>; KINDS],
    processed_handles: [[OnceLock<Counter>; KINDS]; Listener::ALL.len()],
}

impl EventMetrics {
    pub(crate) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            published: registry.counters(
                "tasks_events_published",
                ["event_type"],
                "Task events that this process published, with or without listeners",
            ),
            processed: registry.counters(
                "tasks_events_processed",
                ["listener", "event_type"],
                "Task events that a listener of this process has processed: `live` streams or \
                 the `hooks` of types",
            ),
            published_handles: Default::default(),
            processed_handles: Default::default(),
        }
    }

    pub(crate) fn published(&self, event: EventKind) {
        if let Some(handle) = self.published_handles.get(event as usize) {
            handle
                .get_or_init(|| self.published.get([event.as_str()]))
                .inc();
        }
    }
}

impl Metrics {
    /// A listener has processed an event.
    pub fn processed(&self, listener: Listener, event: EventKind) {
        if let Some(handle) = self.events.processed_handles[listener as usize].get(event as usize) {
            handle
                .get_or_init(|| {
                    self.events
                        .processed
                        .get([listener.as_str(), event.as_str()])
                })
                .inc();
        }
    }
}
