use longhaul_domain::{TaskIdSequence, Timestamp, contract::broker::Hint};
use longhaul_sdk::{Job, Registry, TypeSettings};
use longhaul_testkit::names::queue_name;

use super::*;
use crate::test_node;

/// The acknowledged hint of a task whose type had no free slot.
fn refused_hint() -> Hint {
    let now = Timestamp::from_micros(1);
    Hint {
        task_id: TaskIdSequence::default().next_id(now, 1),
        owner: "ann".to_owned(),
        task_type: "t".to_owned(),
        queue: queue_name("q"),
        priority: 1,
        retry_count: 0,
        submitted_at: now,
        due_at: now,
        lookups: 0,
        correlation_id: None,
        trace_context: None,
    }
}

#[tokio::test]
async fn a_refused_hint_is_remembered_when_the_claim_for_it_fails() {
    let mut registry = Registry::default();
    let run = |_: (), _: Job| async { Ok(()) };
    registry.register_fn("t", TypeSettings::new(), run).unwrap();
    let node = test_node::unregistered(registry);
    node.demand.add_refused(&refused_hint());
    let refused = node.demand.refused();
    assert_eq!(refused.len(), 1);

    let mut claimer = Claimer::new(Arc::clone(&node));
    let plan = claimer.plan_round();
    let claimed = claimer.round(&plan).await;
    assert_eq!(claimed, Err(StoreError::NodeLost));
    assert_eq!(node.demand.refused(), refused);
}
