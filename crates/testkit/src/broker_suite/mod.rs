//! The conformance suite of the broker contract.
//!
//! What a broker stores for others is checked through a second consumer. [`Lanes`] says how brokers
//! may differ.

mod hints;
mod later;
mod others;
mod signals;

use libtest_mimic::Trial;
use longhaul_domain::{
    TaskId,
    contract::broker::{Broker, Delivery, Hint, HintConsumer, Published},
    time::Timestamp,
};

use crate::names::queue_name;
use crate::suite::{self, Factory, random_task_id, within_deadline};

/// Makes a connected broker with its own empty namespace.
pub type BrokerFactory = Factory<(), dyn Broker>;

/// Whether hints with a higher priority overtake the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lanes {
    ByPriority,
    InOrder,
}

/// One trial for each case, named `{backend}::broker::{sentence}`.
pub fn trials(backend: &str, lanes: Lanes, factory: &BrokerFactory) -> Vec<Trial> {
    let mut cases = hints::cases();
    cases.extend(later::cases());
    cases.extend(signals::cases());
    cases.extend(others::cases());
    if lanes == Lanes::ByPriority {
        cases.extend(hints::cases_of_priority());
    }

    suite::trials(backend, "broker", factory, cases)
}

const QUEUE: &str = "vip_short";

fn hint(number: u32) -> Hint {
    Hint {
        task_id: random_task_id(),
        owner: "ann".to_owned(),
        task_type: "novel.write".to_owned(),
        queue: queue_name(QUEUE),
        priority: 1,
        retry_count: number,
        submitted_at: Timestamp::from_micros(1_700_000_000_123_456),
        due_at: Timestamp::from_micros(1_700_000_001_000_001),
        lookups: 0,
        correlation_id: None,
        trace_context: None,
    }
}

/// Hints of different tasks.
fn hints(count: u32) -> Vec<Hint> {
    (0..count).map(hint).collect()
}

fn ids(hints: &[Hint]) -> Vec<TaskId> {
    hints.iter().map(|hint| hint.task_id).collect()
}

async fn declare(broker: &dyn Broker, queues: &[&str]) {
    let queues: Vec<_> = queues.iter().map(|queue| (*queue).to_owned()).collect();
    broker.declare(&queues).await.unwrap();
}

/// Publishes hints and expects all of them to be confirmed.
async fn publish(broker: &dyn Broker, hints: &[Hint]) {
    let answers = within_deadline(broker.publish_hints(hints)).await;
    assert_eq!(answers, vec![Published::Confirmed; hints.len()]);
}

/// The next `count` hints, in batches of any size.
async fn receive(consumer: &mut Box<dyn HintConsumer>, count: usize) -> Vec<Delivery> {
    let mut received = Vec::new();
    while received.len() < count {
        let most = count - received.len();
        let next = within_deadline(consumer.next(most)).await;
        assert!(
            !next.is_empty() && next.len() <= most,
            "{} hints for at most {most}",
            next.len()
        );
        received.extend(next);
    }

    received
}

fn received_ids(received: &[Delivery]) -> Vec<TaskId> {
    received
        .iter()
        .map(|delivery| delivery.hint.task_id)
        .collect()
}

fn tags(received: &[Delivery]) -> Vec<u64> {
    received.iter().map(|delivery| delivery.tag).collect()
}

/// Waits until the broker counts this many waiting hints.
async fn until_depth(broker: &dyn Broker, queue: &str, depth: usize) {
    within_deadline(async {
        while broker.depth(queue).await.unwrap() != depth {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
