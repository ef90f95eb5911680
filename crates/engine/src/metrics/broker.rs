//! What goes over the broker, and whether it is there.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use longhaul_domain::contract::{
    Broker,
    broker::{BrokerState, Traffic},
};
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};

use super::{
    book::{Book, Kind, Many},
    handles::Bounded,
};

/// Which part of the traffic a family counts.
type Part = fn(&Traffic) -> u64;

#[derive(Debug)]
pub(crate) struct BrokerMetrics {
    up: Many<Gauge, 0>,
    traffic: [(Bounded<Counter>, Part); 5],
    /// What was shown last, by queue: the broker tells sums, and counters only grow.
    shown: Mutex<HashMap<String, Traffic>>,
    rung: Counter,
    rung_again: Counter,
    not_dispatched: Counter,
}

impl BrokerMetrics {
    pub(crate) fn new(book: &mut Book) -> Self {
        let mut family =
            |name, help, part: Part| (Bounded::new(book.counters(name, ["queue"], help)), part);
        let traffic = [
            family(
                "broker_messages_published",
                "Messages that the broker took from this process",
                |of| of.published,
            ),
            family(
                "broker_messages_delivered",
                "Messages that it handed to this process",
                |of| of.delivered,
            ),
            family(
                "broker_messages_acked",
                "Those that this process was done with",
                |of| of.acked,
            ),
            family(
                "broker_messages_nacked",
                "Messages that the broker refused, or got back unread",
                |of| of.nacked,
            ),
            family(
                "broker_messages_returned",
                "Messages that came back because no queue takes them",
                |of| of.returned,
            ),
        ];
        Self {
            traffic,
            shown: Mutex::default(),
            up: book.gauges("broker_up", [], "Whether this process can reach the broker: 1 or 0; absent without one"),
            rung: book.single("tasks_bells_rung", Kind::Counter, "Bells that this process rang over the broker"),
            rung_again: book.single(
                "tasks_bells_rung_again",
                Kind::Counter,
                "Bells that the ringer of this process rang because an earlier one was lost or found nobody",
            ),
            not_dispatched: book.single(
                "tasks_not_dispatched",
                Kind::Counter,
                "Tasks that this process failed because the broker refused their bells again and again",
            ),
        }
    }

    pub(crate) fn rung(&self, bells: usize) {
        self.rung.inc_by(bells as u64);
    }

    pub(crate) fn rung_again(&self, bells: usize) {
        self.rung_again.inc_by(bells as u64);
    }

    pub(crate) fn not_dispatched(&self, tasks: usize) {
        self.not_dispatched.inc_by(tasks as u64);
    }

    /// Shows the broker as it is now.
    pub(crate) fn show(&self, broker: Option<&dyn Broker>) {
        let Some(broker) = broker else { return };
        self.up
            .get([])
            .set(i64::from(broker.state() == BrokerState::Up));
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        for (queue, now) in broker.traffic() {
            let before = shown.insert(queue.clone(), now).unwrap_or_default();
            for (counters, part) in &self.traffic {
                counters
                    .get(&queue)
                    .inc_by(part(&now).saturating_sub(part(&before)));
            }
        }
    }
}
