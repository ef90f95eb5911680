//! The eager start: a submit that finds a free slot here creates its task and claims it in one
//! transaction.
//!
//! There is one eager start at a time. Submits that arrive during it share a transaction with each
//! other, which serves many of them better. The store decides what is claimed: the first task of
//! that queue and type, which need not be the new one.

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use longhaul_domain::{NewTask, StoreError, contract::store::Submitted};

use crate::{admission::EagerSlot, claimed, deadlines::claim_timeout, node::Node};

/// Submits the task and starts it, if a slot is free. Returns the task otherwise.
pub(crate) fn submit_and_start(
    node: &Arc<Node>,
    task: NewTask,
) -> Result<BoxFuture<'static, Result<Submitted, StoreError>>, Box<NewTask>> {
    let Some(slot) = EagerSlot::take(node, &task) else {
        return Err(Box::new(task));
    };

    // In a task of its own: a caller that goes away must not leave a claimed task behind.
    let submitting = tokio::spawn(submit_and_claim(slot, task));
    Ok(Box::pin(async move {
        let submitted = submitting.await;
        submitted.unwrap_or_else(|error| Err(StoreError::Internal(error.to_string())))
    }))
}

async fn submit_and_claim(slot: EagerSlot, task: NewTask) -> Result<Submitted, StoreError> {
    let node = Arc::clone(&slot.node);
    let engine = node.engine();
    let request = node.claim_request(vec![slot.queue.clone()], vec![slot.task_type.clone()], 1);

    let began = Instant::now();
    let answer = engine.submit_and_claim(task.clone(), &request).await;
    let (submitted, claimed) = match answer {
        Ok(answer) => answer,
        Err(StoreError::NodeLost) => {
            // The node was declared dead, which is no reason to refuse the task.
            engine.wakeups().notify_leases();
            return engine.submit(task).await;
        }
        Err(error) => return Err(error),
    };

    if began.elapsed() > claim_timeout(&node.settings) {
        // The claim may count as a stray by now, and another node may run the task. The search for
        // strays hands it back otherwise.
        return Ok(submitted);
    }

    // The slot is released after the task has its own: it is counted twice for a moment, but never
    // free in between.
    claimed::start(&node, claimed);
    drop(slot);
    Ok(submitted)
}
