//! The sections `broker` and `redis`: the servers that nodes share beside the store.

use anyhow::ensure;
use longhaul::{QueueKind, RabbitOptions};
use serde::{Deserialize, Serialize};

use super::{Config, SecretUrl, keys::section};

section! {
    /// The message broker between nodes.
    pub struct Broker {
        /// How nodes learn of new work: `local` (nodes claim from the store, and PostgreSQL wakes
        /// them) or RabbitMQ, `amqp://user:password@host/vhost`, with TLS `amqps://…`. With
        /// RabbitMQ, changes, signals and progress of every node reach all others at once. The same
        /// on all nodes. Nodes keep working while it is down.
        #[variable("LONGHAUL_BROKER")]
        pub url: SecretUrl = SecretUrl::new("local"),
        /// A prefix of all exchange and queue names, so that several systems can share one virtual
        /// host. The same on all nodes.
        pub namespace: String = String::new(),
        /// The kind of the queues on RabbitMQ: `classic`, with nine priorities, or `quorum`, which
        /// a cluster replicates and which has two. Existing queues keep their kind: delete all of
        /// them before you change this.
        pub lanes: BrokerQueues = BrokerQueues::Classic,
    }
}

/// The kind of the broker's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BrokerQueues {
    Classic,
    Quorum,
}

section! {
    /// Rate limits and progress that nodes share.
    pub struct Redis {
        /// Where nodes count rate limits together and cache the newest progress:
        /// `redis://[user:password@]host[:port][/database]`, with TLS `rediss://…`. Without it,
        /// each process counts for itself. The same on all nodes.
        #[variable("LONGHAUL_REDIS")]
        pub url: Option<SecretUrl> = None,
        /// A prefix of all keys, so that several systems can share one server. The same on all
        /// nodes.
        pub namespace: String = "longhaul".to_owned(),
        /// The number of nodes that call providers. While Redis is down, each node uses every limit
        /// divided by this.
        pub nodes: u32 = 2,
    }
}

impl Broker {
    pub(super) fn is_rabbitmq(&self) -> bool {
        ["amqp", "amqps"].contains(&self.url.scheme())
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.is_rabbitmq() || self.url.reveal() == "local",
            "broker.url is {}; allowed: local, amqp://user:password@host/vhost, amqps://…",
            self.url
        );

        Ok(())
    }
}

impl Redis {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if let Some(url) = &self.url {
            ensure!(
                ["redis", "rediss"].contains(&url.scheme()),
                "redis.url is {url}; allowed: redis://[user:password@]host[:port][/database], \
                 rediss://…"
            );
        }

        ensure!(self.nodes >= 1, "redis.nodes is 0; allowed: at least 1");
        Ok(())
    }
}

impl Config {
    /// The RabbitMQ server, if there is one.
    pub fn rabbitmq(&self) -> Option<(&str, RabbitOptions)> {
        if !self.broker.is_rabbitmq() {
            return None;
        }

        let options = RabbitOptions {
            namespace: self.broker.namespace.clone(),
            queue_kind: match self.broker.lanes {
                BrokerQueues::Classic => QueueKind::Classic,
                BrokerQueues::Quorum => QueueKind::Quorum,
            },
        };
        Some((self.broker.url.reveal(), options))
    }
}
