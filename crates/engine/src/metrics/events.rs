//! News of tasks, counted when they are told and when somebody has acted on them.

use std::sync::OnceLock;

use longhaul_domain::event::EventKind;
use prometheus_client::metrics::counter::Counter;

use super::{
    Metrics,
    book::{Book, Many},
};

/// As many as there are kinds of events, with room for more.
const KINDS: usize = 16;

/// Who acts on news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// Streams of clients.
    Live,
    /// Hooks of types.
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
    published: Many<Counter, 1>,
    processed: Many<Counter, 2>,
    published_handles: [OnceLock<Counter>; KINDS],
    processed_handles: [[OnceLock<Counter>; KINDS]; Listener::ALL.len()],
}

impl EventMetrics {
    pub(crate) fn new(book: &mut Book) -> Self {
        Self {
            published: book.counters(
                "tasks_events_published",
                ["event_type"],
                "News of tasks that this process had to tell, whether or not anybody listened",
            ),
            processed: book.counters(
                "tasks_events_processed",
                ["listener", "event_type"],
                "News that a listener of this process has acted on: `live` streams and the `hooks` of types",
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
    /// A listener has acted on a piece of news.
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
