//! Fleet: a broker that carries hints and events between processes, and Redis for state that all
//! nodes share.

// Without the feature there are no servers; all state is in this process's memory.
#[cfg_attr(feature = "fleet", path = "fleet/servers.rs")]
#[cfg_attr(not(feature = "fleet"), path = "fleet/no_servers.rs")]
mod servers;

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    Clock, Invalid, StoreError,
    contract::{
        Broker, EventBus, ProgressCache, RateLimiter,
        broker::{BrokerError, BrokerState},
        rate_limiter::LimitRules,
    },
    event::OutboxPolicy,
};
use longhaul_engine::dependency::Dependency;
use longhaul_transport::local::{MemoryEventBus, MemoryRateLimiter};

use crate::Longhaul;
pub(crate) use servers::FleetSettings;

/// How many events a listener may lag before it loses some.
const EVENT_LAG: usize = 4_096;
/// How long a start waits for the broker. It then continues: the broker may come later.
const BROKER_ANSWERS: Duration = Duration::from_secs(5);

/// What a process shares with others, connected or not yet.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) broker: Option<Arc<dyn Broker>>,
    pub(crate) bus: Arc<dyn EventBus>,
    pub(crate) limiter: Arc<dyn RateLimiter>,
    pub(crate) progress: Option<Arc<dyn ProgressCache>>,
    pub(crate) dependencies: Vec<Arc<dyn Dependency>>,
    /// What the store writes for the broker.
    pub(crate) outbox: OutboxPolicy,
}

impl FleetSettings {
    /// Starts to connect. It waits for no server.
    pub(crate) fn connect(
        self,
        limits: LimitRules,
        clock: Arc<dyn Clock>,
    ) -> Result<Fleet, Invalid> {
        let outbox = self.outbox()?;
        let mut dependencies: Vec<Arc<dyn Dependency>> = Vec::new();

        let (broker, bus): (_, Arc<dyn EventBus>) = match self.broker(&mut dependencies)? {
            Some((broker, bus)) => (Some(broker), bus),
            None => (None, Arc::new(event_bus())),
        };

        let (limiter, progress): (Arc<dyn RateLimiter>, _) =
            match self.redis(&limits, &clock, &mut dependencies)? {
                Some((limiter, progress)) => (limiter, Some(progress)),
                None => (Arc::new(MemoryRateLimiter::new(clock, limits)?), None),
            };

        Ok(Fleet {
            broker,
            bus,
            limiter,
            progress,
            dependencies,
            outbox,
        })
    }
}

/// The event bus of this process.
fn event_bus() -> MemoryEventBus {
    MemoryEventBus::new(EVENT_LAG)
}

impl Longhaul {
    /// Declares the topology of these queues and of those in the store. Refuses a queue with
    /// another topology. If the broker does not answer within seconds, nodes start without it.
    pub async fn declare_topology(&self, queues: &[String]) -> Result<(), StoreError> {
        let Some(broker) = self.engine().broker() else {
            return Ok(());
        };

        let stored = self.engine().queues().list_queues().await?;
        let mut names: Vec<String> = queues.to_vec();
        names.extend(stored.into_iter().map(|queue| queue.name.to_string()));

        let routed = self.client.routing.queues();
        names.extend(routed.iter().map(ToString::to_string));
        names.extend(self.types().filter_map(|kind| kind.settings.queue.clone()));
        names.sort();
        names.dedup();

        match declare(&**broker, &names).await {
            Ok(()) => Ok(()),
            Err(BrokerError::Topology(what)) => Err(other_topology(what).into()),
            Err(BrokerError::Unavailable(why)) => {
                tracing::warn!(
                    %why,
                    "broker unavailable; nodes claim from the store until it answers"
                );
                Ok(())
            }
        }
    }
}

/// Waits briefly for the broker and declares the topology of the queues.
#[cfg_attr(
    not(feature = "server"),
    expect(unreachable_pub, reason = "for the programs of operators")
)]
pub async fn declare(broker: &dyn Broker, queues: &[String]) -> Result<(), BrokerError> {
    until_up(broker, BROKER_ANSWERS)
        .await
        .map_err(BrokerError::Unavailable)?;
    broker.declare(queues).await
}

/// Waits for the broker, at most for `timeout`. The error says why it is not available.
#[cfg_attr(
    not(feature = "server"),
    expect(unreachable_pub, reason = "for the programs of operators")
)]
pub async fn until_up(broker: &dyn Broker, timeout: Duration) -> Result<(), String> {
    let up = async {
        let mut state = broker.state();
        while state != BrokerState::Up {
            state = broker.state_after(&state).await;
        }
    };

    match (tokio::time::timeout(timeout, up).await, broker.state()) {
        (Ok(()), _) | (Err(_), BrokerState::Up) => Ok(()),
        (Err(_), BrokerState::Down(why)) => Err(why),
    }
}

fn other_topology(what: String) -> Invalid {
    let allowed =
        "what longhaul migrate declares; delete what is there, or set another broker.namespace";
    Invalid::new(
        "broker",
        format!("has been set up otherwise: {what}"),
        allowed,
    )
}
