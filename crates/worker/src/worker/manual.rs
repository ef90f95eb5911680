//! A worker without loops: whoever has it says when it works. For tests, which want to know when nothing is left.

use std::sync::Arc;

use longhaul_domain::StoreError;
use longhaul_engine::service::{Duty, Pass};

use super::{Inner, claimer, heart, reporter};
use crate::{run::Services, settings::WorkerSettings};

/// A worker that works when it is told to. Dropped, it is a node that died.
#[derive(Debug)]
pub struct ManualWorker {
    inner: Arc<Inner>,
    duties: Vec<Arc<dyn Duty>>,
}

impl ManualWorker {
    /// Registers the node. The arguments are those of [`Worker::start`](super::Worker::start).
    pub async fn start(
        services: Arc<Services>,
        settings: WorkerSettings,
        duties: Vec<Arc<dyn Duty>>,
        is_alone: bool,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            inner: Inner::start(services, settings, is_alone).await?,
            duties,
        })
    }

    /// Shows that the node lives, does the duties until they are clear, claims once what is due, runs the handlers to
    /// their ends and delivers their reports. Answers with how many tasks it claimed.
    ///
    /// A cancel of this process is heard while handlers run. When this returns, their hooks have run too.
    pub async fn step(&self) -> Result<usize, StoreError> {
        let inner = &self.inner;
        self.beat().await?;
        for duty in &self.duties {
            // The duty is this worker's by the word of whoever has it: it needs no lease in the store.
            while duty.pass(inner.engine()).await? == Pass::More {}
        }
        let scopes = inner.desk().scopes();
        let look = claimer::claim_all(inner, &scopes).await?;
        loop {
            tokio::select! {
                () = inner.handlers.wait() => break,
                () = inner.engine().look_at_leases.notified() => self.beat().await?,
            }
        }
        reporter::deliver_all(inner).await?;
        inner.services.hooks.wait().await;
        Ok(look.claimed)
    }

    /// Ends as `kill -9` does: handlers are dropped where they stand, nothing is reported, and the node is found dead
    /// later. When this returns, no handler runs any more.
    pub async fn crash(self) {
        self.inner.abort_all();
        self.inner.handlers.wait().await;
    }

    async fn beat(&self) -> Result<(), StoreError> {
        match heart::beat(&self.inner).await {
            Err(StoreError::NodeLost) => {
                heart::come_back(&self.inner).await;
                Ok(())
            }
            beaten => beaten,
        }
    }
}

impl Drop for ManualWorker {
    fn drop(&mut self) {
        self.inner.abort_all();
    }
}
