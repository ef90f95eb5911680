//! RabbitMQ and Redis, both optional.

use std::sync::Arc;

use longhaul_domain::{
    Clock, Invalid,
    contract::{
        Broker, EventBus, ProgressCache, RateLimiter, broker::BrokerState, rate_limiter::LimitRules,
    },
    event::OutboxPolicy,
    event::{EventRule, EventSelection},
};
use longhaul_engine::dependency::Dependency;
use longhaul_transport::{
    rabbitmq::{RabbitBroker, RabbitEventBus, RabbitOptions},
    redis::{Fallback, Redis, RedisProgressCache, RedisRateLimiter, RedisState},
};

use crate::Builder;

/// The servers configured beside the store.
#[derive(Debug)]
pub(crate) struct FleetSettings {
    rabbitmq: Option<(Secret, RabbitOptions)>,
    redis: Option<(Secret, String)>,
    /// How many nodes share each limit while Redis is down.
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
        Self {
            rabbitmq: None,
            redis: None,
            nodes: 1,
            external: Vec::new(),
        }
    }
}

impl Builder {
    /// Connects processes through RabbitMQ, which carries hints, events, signals and progress:
    /// `amqp://user:password@host/vhost`, or `amqps://…` with TLS. The store stays authoritative;
    /// while the broker is down, nodes poll it. All processes of a store use the same broker and
    /// namespace.
    #[must_use]
    pub fn rabbitmq(mut self, url: &str, options: RabbitOptions) -> Self {
        self.fleet.rabbitmq = Some((Secret(url.to_owned()), options));
        self
    }

    /// Shares rate limits and the newest progress between nodes: `redis://[user:password@]host` or
    /// `rediss://…`. All processes of a store use the same server and namespace.
    #[must_use]
    pub fn redis(mut self, url: &str, namespace: &str) -> Self {
        self.fleet.redis = Some((Secret(url.to_owned()), namespace.to_owned()));
        self
    }

    /// How many nodes call providers. While Redis is down, each uses that share of every limit.
    #[must_use]
    pub const fn nodes(mut self, nodes: u32) -> Self {
        self.fleet.nodes = nodes;
        self
    }

    /// Publishes these events on the broker's topic exchange. Without rules, it publishes none.
    #[must_use]
    pub fn external_events(mut self, rules: Vec<EventRule>) -> Self {
        self.fleet.external = rules;
        self
    }
}

type Connected<A, B> = Result<Option<(Arc<A>, Arc<B>)>, Invalid>;

impl FleetSettings {
    pub(crate) const fn has_broker(&self) -> bool {
        self.rabbitmq.is_some()
    }

    /// What the store writes for the broker.
    pub(super) fn outbox(&self) -> Result<OutboxPolicy, Invalid> {
        let outbox = OutboxPolicy {
            events: EventSelection::new(&self.external)?,
            dead_letters: self.has_broker(),
        };
        if !self.has_broker() && !outbox.events.is_empty() {
            let allowed = "none, or a broker that carries them (broker.url)";
            return Err(Invalid::new(
                "events.external",
                "names events, and there is no broker",
                allowed,
            ));
        }

        Ok(outbox)
    }

    /// The broker and its event bus.
    pub(super) fn broker(
        &self,
        dependencies: &mut Vec<Arc<dyn Dependency>>,
    ) -> Connected<dyn Broker, dyn EventBus> {
        let Some((url, options)) = &self.rabbitmq else {
            return Ok(None);
        };

        let broker = RabbitBroker::connect(&url.0, options.clone())?;
        let dependency = BrokerUp(Arc::clone(&broker) as Arc<dyn Broker>);
        dependencies.push(Arc::new(dependency));

        let bus = Arc::new(RabbitEventBus::new(&broker, super::event_bus()));
        Ok(Some((broker, bus)))
    }

    /// Limits and progress shared by all nodes.
    pub(super) fn redis(
        &self,
        limits: &LimitRules,
        clock: &Arc<dyn Clock>,
        dependencies: &mut Vec<Arc<dyn Dependency>>,
    ) -> Connected<dyn RateLimiter, dyn ProgressCache> {
        let Some((url, namespace)) = &self.redis else {
            return Ok(None);
        };

        let redis = Redis::open(&url.0, namespace)?;
        dependencies.push(Arc::new(RedisUp(Arc::clone(&redis))));

        let fallback = Fallback {
            nodes: self.nodes,
            clock: Arc::clone(clock),
        };
        let limiter = RedisRateLimiter::new(Arc::clone(&redis), limits.clone(), fallback)?;
        Ok(Some((
            Arc::new(limiter),
            Arc::new(RedisProgressCache::new(redis)),
        )))
    }
}

#[derive(Debug)]
struct BrokerUp(Arc<dyn Broker>);

impl Dependency for BrokerUp {
    fn name(&self) -> &'static str {
        "broker"
    }

    fn is_up(&self) -> bool {
        self.0.state() == BrokerState::Up
    }
}

#[derive(Debug)]
struct RedisUp(Arc<Redis>);

impl Dependency for RedisUp {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn is_up(&self) -> bool {
        self.0.state() == RedisState::Up
    }
}
