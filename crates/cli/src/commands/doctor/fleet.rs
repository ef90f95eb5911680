//! Whether RabbitMQ and Redis answer, and whether they are set up as a fleet needs them.

use std::time::Duration;

use longhaul::operating::{Broker as _, BrokerError, RabbitBroker, Redis, RedisState, until_up};

use super::Check;
use crate::config::Config;

/// How long a server may take to answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// Hints in one queue above which the fleet is behind by far more than a second.
const MANY_HINTS: usize = 20_000;

pub(super) async fn examine(config: &Config) -> Vec<Check> {
    let mut checks = broker(config).await;
    checks.extend(redis(config).await);
    checks
}

async fn broker(config: &Config) -> Vec<Check> {
    let Some((url, options)) = config.rabbitmq() else {
        return Vec::new();
    };
    let shown = &config.broker.url;
    let down = |why: String| {
        let advice = "nodes work without it, more slowly: check LONGHAUL_BROKER, the network, the \
                      server and its user's rights";
        Check::fail("broker", format!("{shown}: {why}"), advice)
    };

    let broker = match RabbitBroker::connect(url, options) {
        Ok(broker) => broker,
        Err(refused) => return vec![down(refused.to_string())],
    };
    if let Err(why) = until_up(&*broker, DEADLINE).await {
        return vec![down(why)];
    }

    let topology = topology(config, &broker).await;
    broker.close().await;
    vec![Check::ok("broker", format!("{shown} answers")), topology]
}

/// Whether the queues exist, and how many hints wait in them.
async fn topology(config: &Config, broker: &RabbitBroker) -> Check {
    let mut waiting = Vec::new();
    let mut missing = Vec::new();

    for queue in config.queues() {
        match broker.existing_depth(&queue).await {
            Ok(Some(hints)) => waiting.push((queue, hints)),
            Ok(None) => missing.push(queue),
            Err(BrokerError::Topology(what)) => {
                let advice = "run longhaul migrate; delete what is declared differently first, or \
                              use another broker.namespace";
                return Check::fail("topology", what, advice);
            }
            Err(BrokerError::Unavailable(why)) => {
                let advice = "try again: the broker answered a moment ago";
                return Check::warn("topology", format!("{queue}: {why}"), advice);
            }
        }
    }

    if !missing.is_empty() {
        let found = format!("missing: {}", missing.join(", "));
        let advice = "run longhaul migrate, or start a node: both declare what is missing";
        return Check::warn("topology", found, advice);
    }

    depth_check(&waiting)
}

fn depth_check(waiting: &[(String, usize)]) -> Check {
    let total: usize = waiting.iter().map(|(_, hints)| hints).sum();
    let found = format!("{} queues exist, with {total} hints", waiting.len());

    match waiting.iter().find(|(_, hints)| *hints > MANY_HINTS) {
        Some((queue, hints)) => {
            let advice = format!("{hints} of them in {queue}: does a worker serve this queue?");
            Check::warn("topology", found, advice)
        }
        None => Check::ok("topology", found),
    }
}

async fn redis(config: &Config) -> Vec<Check> {
    let Some(url) = &config.redis.url else {
        return Vec::new();
    };
    let down = |why: String| {
        let advice = "nodes work without it, each with its share of the limits: check \
                      LONGHAUL_REDIS, the network and the password";
        Check::fail("redis", format!("{url}: {why}"), advice)
    };

    let redis = match Redis::open(url.reveal(), &config.redis.namespace) {
        Ok(redis) => redis,
        Err(refused) => return vec![down(refused.to_string())],
    };
    let up = tokio::time::timeout(DEADLINE, redis.until(true)).await;
    if up.is_err() {
        return vec![down(match redis.state() {
            RedisState::Down(why) => why,
            RedisState::Up => "it answered too late".to_owned(),
        })];
    }

    let answers = Check::ok("redis", format!("{url} answers"));
    vec![answers, eviction_check(redis.eviction_policy().await)]
}

fn eviction_check(policy: Result<String, String>) -> Check {
    match policy {
        Ok(policy) if policy == "noeviction" => Check::ok("eviction", policy),
        Ok(policy) => {
            let advice = "a full server would forget limits: set maxmemory-policy noeviction, or \
                          give Longhaul its own server";

            Check::warn("eviction", policy, advice)
        }
        Err(why) => Check::warn(
            "eviction",
            why,
            "make sure that its maxmemory-policy is noeviction",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::CheckState;
    use super::*;

    #[test]
    fn a_queue_with_many_hints_is_a_warning() {
        let state = |hints| {
            let waiting = [("a".to_owned(), 3), ("b".to_owned(), hints)];
            depth_check(&waiting).state
        };

        assert_eq!(state(0), CheckState::Ok);
        assert_eq!(state(MANY_HINTS), CheckState::Ok);
        assert_eq!(state(MANY_HINTS + 1), CheckState::Warn);
    }
}
