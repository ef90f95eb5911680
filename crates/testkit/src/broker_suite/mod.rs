//! The conformance suite of the broker contract.
//!
//! Everything that a broker keeps for others is tried through a second consumer. What differs between brokers by
//! nature is told by [`Lanes`].

mod bells;
mod later;
mod others;
mod signals;

use libtest_mimic::Trial;
use longhaul_domain::{
    TaskId,
    contract::broker::{Bell, Bells, Broker, Delivery, Published},
    time::Timestamp,
};

use crate::suite::{self, Factory, random_task_id, within_patience};

/// Makes a broker that is up, with a namespace of its own in which nothing is declared.
pub type BrokerFactory = Factory<(), dyn Broker>;

/// Whether bells with a higher priority overtake the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lanes {
    ByPriority,
    InOrder,
}

/// One trial for each case, named `{backend}::broker::{sentence}`.
pub fn trials(backend: &str, lanes: Lanes, factory: &BrokerFactory) -> Vec<Trial> {
    let mut cases = bells::cases();
    cases.extend(later::cases());
    cases.extend(signals::cases());
    cases.extend(others::cases());
    if lanes == Lanes::ByPriority {
        cases.extend(bells::cases_of_priority());
    }
    suite::trials(backend, "broker", factory, cases)
}

const QUEUE: &str = "vip_short";

fn bell(number: u32) -> Bell {
    Bell {
        task_id: random_task_id(),
        owner: "ann".to_owned(),
        task_type: "novel.write".to_owned(),
        queue: QUEUE.to_owned(),
        priority: 1,
        retry_count: number,
        submitted_at: Timestamp::from_micros(1_700_000_000_123_456),
        due_at: Timestamp::from_micros(1_700_000_001_000_001),
        looks: 0,
        correlation_id: None,
        trace_context: None,
    }
}

/// Bells that are told apart by their tasks.
fn bells(count: u32) -> Vec<Bell> {
    (0..count).map(bell).collect()
}

fn ids(bells: &[Bell]) -> Vec<TaskId> {
    bells.iter().map(|bell| bell.task_id).collect()
}

async fn declare(broker: &dyn Broker, queues: &[&str]) {
    let queues: Vec<_> = queues.iter().map(|queue| (*queue).to_owned()).collect();
    broker.declare(&queues).await.unwrap();
}

/// Rings, and everything is confirmed.
async fn ring(broker: &dyn Broker, bells: &[Bell]) {
    let answers = within_patience(broker.ring(bells)).await;
    assert_eq!(answers, vec![Published::Confirmed; bells.len()]);
}

/// The next `count` bells, however many come at a time.
async fn hear(consumer: &mut Box<dyn Bells>, count: usize) -> Vec<Delivery> {
    let mut heard = Vec::new();
    while heard.len() < count {
        let most = count - heard.len();
        let next = within_patience(consumer.next(most)).await;
        assert!(
            !next.is_empty() && next.len() <= most,
            "{} bells for at most {most}",
            next.len()
        );
        heard.extend(next);
    }
    heard
}

fn heard_ids(heard: &[Delivery]) -> Vec<TaskId> {
    heard.iter().map(|delivery| delivery.bell.task_id).collect()
}

fn tags(heard: &[Delivery]) -> Vec<u64> {
    heard.iter().map(|delivery| delivery.tag).collect()
}

/// Waits until the broker counts so many waiting bells.
async fn until_depth(broker: &dyn Broker, queue: &str, depth: usize) {
    within_patience(async {
        while broker.depth(queue).await.unwrap() != depth {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
