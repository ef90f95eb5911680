//! Replaces `servers` in a program built without the feature `fleet`: there are none.

use std::sync::Arc;

use longhaul_domain::{
    Clock, Invalid,
    contract::{Broker, EventBus, ProgressCache, RateLimiter, rate_limiter::LimitRules},
    event::OutboxPolicy,
};
use longhaul_engine::dependency::Dependency;

/// No server can be configured beside the store.
#[derive(Debug, Default)]
pub(crate) struct FleetSettings {}

type Connected<A, B> = Result<Option<(Arc<A>, Arc<B>)>, Invalid>;

impl FleetSettings {
    pub(crate) const fn has_broker(&self) -> bool {
        false
    }

    pub(super) fn outbox(&self) -> Result<OutboxPolicy, Invalid> {
        Ok(OutboxPolicy::default())
    }

    pub(super) fn broker(
        &self,
        _dependencies: &mut Vec<Arc<dyn Dependency>>,
    ) -> Connected<dyn Broker, dyn EventBus> {
        Ok(None)
    }

    pub(super) fn redis(
        &self,
        _limits: &LimitRules,
        _clock: &Arc<dyn Clock>,
        _dependencies: &mut Vec<Arc<dyn Dependency>>,
    ) -> Connected<dyn RateLimiter, dyn ProgressCache> {
        Ok(None)
    }
}
