//! The eager start: a submit that finds a free slot here makes its task and claims it in one commit.
//!
//! One at a time does so: whoever comes meanwhile shares a commit with others, which serves many better. The claim is the
//! store's own, so the order holds: what is claimed is what comes first in that queue and type.

use std::sync::{Arc, Weak, atomic::Ordering};
use std::time::Instant;

use longhaul_domain::{
    NewTask, RunAt, StoreError,
    contract::store::{ClaimRequest, Submitted},
};

use super::{Inner, claimer};
use crate::{patience::for_claim, run::Services};

/// Submits a task, and starts it at once if this process can.
pub(crate) async fn submit(
    services: &Arc<Services>,
    task: NewTask,
) -> Result<Submitted, StoreError> {
    let is_plain = task.run_at == RunAt::Now && task.idempotency.is_none() && task.parent.is_none();
    let here = services
        .here
        .get()
        .filter(|_| is_plain)
        .and_then(Weak::upgrade);
    let Some(held) = here.and_then(|inner| Held::take(inner, &task)) else {
        return services.engine.submit(task).await;
    };
    // A task of the runtime's: a caller that goes away must not leave a claimed task behind.
    let started = tokio::spawn(async move { submit_and_start(held, task).await });
    started
        .await
        .unwrap_or_else(|error| Err(StoreError::Internal(error.to_string())))
}

async fn submit_and_start(held: Held, task: NewTask) -> Result<Submitted, StoreError> {
    let inner = Arc::clone(&held.inner);
    let request = ClaimRequest {
        node_id: inner.node(),
        host: inner.settings.host.clone(),
        queues: vec![held.queue.clone()],
        task_types: vec![held.task_type.clone()],
        limit: 1,
    };
    let began = Instant::now();
    let (submitted, claimed) = match inner
        .engine()
        .submit_and_claim(task.clone(), &request)
        .await
    {
        // The node was declared dead, which is no reason to refuse the task.
        Err(StoreError::NodeLost) => {
            inner.engine().look_at_leases.notify_one();
            return inner.engine().submit(task).await;
        }
        answer => answer?,
    };
    if began.elapsed() > for_claim(&inner.settings) {
        // By now they may count as strays, and others may run them; the look for strays has them go back, if nobody has. The
        // submit itself is good.
        return Ok(submitted);
    }
    // The slot is counted twice for a moment, never not at all.
    claimer::start(&inner, claimed);
    drop(held);
    Ok(submitted)
}

/// A slot for a task that is about to be claimed, and the right to claim it.
struct Held {
    inner: Arc<Inner>,
    queue: String,
    task_type: String,
}

impl Held {
    fn take(inner: Arc<Inner>, task: &NewTask) -> Option<Self> {
        if inner.draining.is_cancelled() || inner.eager.swap(true, Ordering::AcqRel) {
            return None;
        }
        if !inner.desk().hold_slot(&task.queue, &task.task_type) {
            inner.eager.store(false, Ordering::Release);
            return None;
        }
        Some(Self {
            inner,
            queue: task.queue.to_string(),
            task_type: task.task_type.to_string(),
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.inner.desk().release_slot(&self.queue, &self.task_type);
        self.inner.eager.store(false, Ordering::Release);
        self.inner.room_freed();
    }
}
