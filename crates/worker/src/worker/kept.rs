//! Tasks of a node that died and that are kept for its host for a while (R23): whoever runs there asks for them, before they
//! are anybody's.

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::StoreError;
use longhaul_engine::slots::Scope;
use tokio::time::Instant;

use super::{Inner, claimer};

/// How often they are asked for. A node of the host that comes back asks at once.
pub(super) const EVERY: Duration = Duration::from_secs(2);

/// When to ask next.
#[derive(Debug, Default)]
pub(super) struct Kept {
    asked: Option<Instant>,
}

impl Kept {
    /// Claims what is kept for this host, if tasks are kept and it is time to ask. Answers with how many were claimed.
    pub(super) async fn claim(
        &mut self,
        inner: &Arc<Inner>,
        scopes: &[Scope],
    ) -> Result<usize, StoreError> {
        let is_time = self.asked.is_none_or(|at| at.elapsed() >= EVERY);
        if !inner.settings.asks_for_kept || !is_time {
            return Ok(0);
        }
        self.asked = Some(Instant::now());
        let mut claimed = 0;
        let store = &inner.engine().store;
        for scope in scopes {
            let filled = claimer::fill(inner, scope, |request| async move {
                store.claim_kept(&request).await
            })
            .await?;
            claimed += filled.map_or(0, |filled| filled.started);
        }
        Ok(claimed)
    }
}
