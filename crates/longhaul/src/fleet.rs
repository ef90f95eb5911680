//! What a fleet adds to one process: a broker that rings across processes and carries their news, and Redis for what all
//! nodes share.

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
    event_selection::{EventRule, EventSelection},
};
use longhaul_engine::dependency::Dependency;
use longhaul_transport::{
    local::{MemoryEventBus, MemoryRateLimiter},
    rabbitmq::{RabbitBroker, RabbitEventBus, RabbitOptions},
    redis::{Fallback, Redis, RedisProgressCache, RedisRateLimiter, RedisState},
};

use crate::{Builder, Longhaul};

/// Events that a listener may be behind before it loses some.
const BUS: usize = 4_096;
/// How long a start waits for the broker. It then goes on without: the broker may come later.
const BROKER_ANSWERS: Duration = Duration::from_secs(5);

/// What was asked for beside the store.
#[derive(Debug)]
pub(crate) struct FleetSettings {
    rabbitmq: Option<(Secret, RabbitOptions)>,
    redis: Option<(Secret, String)>,
    /// Among how many nodes limits are divided while Redis is away.
    nodes: u32,
    external: Vec<EventRule>,
}

/// A URL that may hold a password.
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self { rabbitmq: None, redis: None, nodes: 1, external: Vec::new() }
    }
}

impl Builder {
    /// Rings across processes over RabbitMQ, and carries news, signals and progress between them:
    /// `amqp://user:password@host/vhost`, or `amqps://…` with TLS. The store stays the truth, and while the broker is away
    /// nodes look into it. All processes of a store have the same broker and namespace.
    #[must_use]
    pub fn rabbitmq(mut self, url: &str, options: RabbitOptions) -> Self {
        self.fleet.rabbitmq = Some((Secret(url.to_owned()), options));
        self
    }

    /// Rate limits for all nodes together, and the newest progress wherever a task runs: `redis://[user:password@]host` or
    /// `rediss://…`. All processes of a store have the same server and namespace.
    #[must_use]
    pub fn redis(mut self, url: &str, namespace: &str) -> Self {
        self.fleet.redis = Some((Secret(url.to_owned()), namespace.to_owned()));
        self
    }

    /// How many nodes call providers. While Redis is away, each keeps to that part of every limit.
    #[must_use]
    pub const fn nodes(mut self, nodes: u32) -> Self {
        self.fleet.nodes = nodes;
        self
    }

    /// Tells these events to the world, over the broker's topic exchange. Without rules, none.
    #[must_use]
    pub fn external_events(mut self, rules: Vec<EventRule>) -> Self {
        self.fleet.external = rules;
        self
    }
}

/// What a process shares with others, connected or about to be.
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
    pub(crate) const fn has_broker(&self) -> bool {
        self.rabbitmq.is_some()
    }

    /// Begins to connect. Nothing waits for a server here.
    pub(crate) fn connect(self, limits: LimitRules, clock: Arc<dyn Clock>) -> Result<Fleet, Invalid> {
        let news = MemoryEventBus::new(BUS);
        let outbox =
            OutboxPolicy { events: EventSelection::new(&self.external)?, dead_letters: self.rabbitmq.is_some() };
        if self.rabbitmq.is_none() && !outbox.events.is_empty() {
            let allowed = "none, or a broker that carries them (broker.url)";
            return Err(Invalid::new("events.external", "names events, and there is no broker", allowed));
        }
        let mut dependencies: Vec<Arc<dyn Dependency>> = Vec::new();
        let (broker, bus): (Option<Arc<dyn Broker>>, Arc<dyn EventBus>) = match self.rabbitmq {
            Some((url, options)) => {
                let broker = RabbitBroker::connect(&url.0, options)?;
                dependencies.push(Arc::new(BrokerThere(Arc::clone(&broker) as Arc<dyn Broker>)));
                let bus = Arc::new(RabbitEventBus::new(&broker, news));
                (Some(broker), bus)
            }
            None => (None, Arc::new(news)),
        };
        let (limiter, progress): (Arc<dyn RateLimiter>, Option<Arc<dyn ProgressCache>>) = match self.redis {
            Some((url, namespace)) => {
                let redis = Redis::open(&url.0, &namespace)?;
                dependencies.push(Arc::new(RedisThere(Arc::clone(&redis))));
                let fallback = Fallback { nodes: self.nodes, clock };
                let limiter = RedisRateLimiter::new(Arc::clone(&redis), limits, fallback)?;
                (Arc::new(limiter), Some(Arc::new(RedisProgressCache::new(redis))))
            }
            None => (Arc::new(MemoryRateLimiter::new(clock, limits)?), None),
        };
        Ok(Fleet { broker, bus, limiter, progress, dependencies, outbox })
    }
}

#[derive(Debug)]
struct BrokerThere(Arc<dyn Broker>);

impl Dependency for BrokerThere {
    fn name(&self) -> &'static str {
        "broker"
    }

    fn is_up(&self) -> bool {
        self.0.state() == BrokerState::Up
    }
}

#[derive(Debug)]
struct RedisThere(Arc<Redis>);

impl Dependency for RedisThere {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn is_up(&self) -> bool {
        self.0.state() == RedisState::Up
    }
}

impl Longhaul {
    /// Declares what the broker needs for these queues and those that the store knows, and refuses one whose topology is
    /// another's. A broker that does not answer in some seconds is left for later: nodes work without it until then.
    pub async fn declare_topology(&self, queues: &[String]) -> Result<(), StoreError> {
        let Some(broker) = &self.engine().broker else { return Ok(()) };
        let mut names: Vec<String> = queues.to_vec();
        names.extend(self.store().list_queues().await?.into_iter().map(|queue| queue.name));
        names.extend(self.services.routing.queues());
        names.extend(self.types().filter_map(|kind| kind.settings.queue.clone()));
        names.sort();
        names.dedup();
        match declare(&**broker, &names).await {
            Ok(()) => Ok(()),
            Err(BrokerError::Topology(what)) => Err(differs(what).into()),
            Err(BrokerError::Unavailable(why)) => {
                tracing::warn!(%why, "the broker is away: nodes look into the store until it is there");
                Ok(())
            }
        }
    }
}

/// Waits a while for the broker and declares what it needs for the queues.
#[cfg_attr(not(feature = "server"), expect(unreachable_pub, reason = "for the programs of operators"))]
pub async fn declare(broker: &dyn Broker, queues: &[String]) -> Result<(), BrokerError> {
    until_up(broker, BROKER_ANSWERS).await.map_err(BrokerError::Unavailable)?;
    broker.declare(queues).await
}

/// Waits until the broker is there, at most so long; then the error says why it is not.
#[cfg_attr(not(feature = "server"), expect(unreachable_pub, reason = "for the programs of operators"))]
pub async fn until_up(broker: &dyn Broker, most: Duration) -> Result<(), String> {
    let up = async {
        let mut state = broker.state();
        while state != BrokerState::Up {
            state = broker.state_after(&state).await;
        }
    };
    match (tokio::time::timeout(most, up).await, broker.state()) {
        (Ok(()), _) | (Err(_), BrokerState::Up) => Ok(()),
        (Err(_), BrokerState::Down(why)) => Err(why),
    }
}

fn differs(what: String) -> Invalid {
    let allowed = "what longhaul migrate declares; delete what is there, or set another broker.namespace";
    Invalid::new("broker", format!("has been set up otherwise: {what}"), allowed)
}
