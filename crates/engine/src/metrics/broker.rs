//! The traffic over the broker, and whether it is up.

use std::collections::HashMap;

use longhaul_domain::contract::{
    Broker,
    broker::{BrokerState, Traffic},
};
use parking_lot::Mutex;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};

use super::{
    handles::Bounded,
    registry::{Kind, MetricFamily, MetricRegistry},
};

/// The number of the traffic that a counter shows.
type Field = fn(&Traffic) -> u64;

#[derive(Debug)]
pub(crate) struct BrokerMetrics {
    up: MetricFamily<Gauge, 0>,
    traffic: [(Bounded<Counter>, Field); 5],
    /// What was shown last, by queue: the broker has sums, and counters take differences.
    /// Locked while a scrape takes the differences, so that two scrapes do not count the same.
    shown: Mutex<HashMap<String, Traffic>>,
    published: Counter,
    republished: Counter,
    not_dispatched: Counter,
}

impl BrokerMetrics {
    pub(crate) fn new(registry: &mut MetricRegistry) -> Self {
        let mut family = |name, help, field: Field| {
            (
                Bounded::new(registry.counters(name, ["queue"], help)),
                field,
            )
        };
        let traffic = [
            family(
                "broker_messages_published",
                "Messages that the broker took from this process",
                |of| of.published,
            ),
            family(
                "broker_messages_delivered",
                "Messages that the broker delivered to this process",
                |of| of.delivered,
            ),
            family(
                "broker_messages_acked",
                "Messages that this process acknowledged",
                |of| of.acked,
            ),
            family(
                "broker_messages_nacked",
                "Messages that the broker refused or that this process returned",
                |of| of.nacked,
            ),
            family(
                "broker_messages_returned",
                "Messages that the broker returned because no queue takes them",
                |of| of.returned,
            ),
        ];

        Self {
            traffic,
            shown: Mutex::default(),
            up: registry.gauges(
                "broker_up",
                [],
                "Whether this process can reach the broker: 1 or 0; absent without a broker",
            ),
            published: registry.single(
                "tasks_hints_published",
                Kind::Counter,
                "Hints that this process published over the broker",
            ),
            republished: registry.single(
                "tasks_hints_republished",
                Kind::Counter,
                "Hints that the dispatcher of this process published again because an earlier \
                 one led to no claim",
            ),
            not_dispatched: registry.single(
                "tasks_not_dispatched",
                Kind::Counter,
                "Tasks that this process failed because the broker refused their hints too often",
            ),
        }
    }

    pub(crate) fn published(&self, hints: usize) {
        self.published.inc_by(hints as u64);
    }

    pub(crate) fn republished(&self, hints: usize) {
        self.republished.inc_by(hints as u64);
    }

    pub(crate) fn not_dispatched(&self, tasks: usize) {
        self.not_dispatched.inc_by(tasks as u64);
    }

    /// Reads the broker's state and traffic.
    pub(crate) fn show(&self, broker: Option<&dyn Broker>) {
        let Some(broker) = broker else { return };
        self.up
            .get([])
            .set(i64::from(broker.state() == BrokerState::Up));
        let mut shown = self.shown.lock();

        for (queue, now) in broker.traffic() {
            let before = shown.insert(queue.clone(), now).unwrap_or_default();
            for (counters, field) in &self.traffic {
                counters
                    .get(&queue)
                    .inc_by(field(&now).saturating_sub(field(&before)));
            }
        }
    }
}
