//! What a fleet has beside its store: whether RabbitMQ and Redis answer, and whether they are set up as they must be.

use std::time::Duration;

use longhaul::operating::{Broker as _, BrokerError, RabbitBroker, Redis, RedisState, until_up};

use super::Check;
use crate::config::Config;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bells that wait in one queue and that people should know of: the fleet is behind by far more than a second.
const DEEP: usize = 20_000;

pub(super) async fn examine(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    checks.extend(broker(config).await);
    checks.extend(redis(config).await);
    checks
}

async fn broker(config: &Config) -> Vec<Check> {
    let Some((url, options)) = config.rabbitmq() else {
        return Vec::new();
    };
    let shown = &config.broker.url;
    let away = |why: String| {
        let advice = "nodes work without it, more slowly: check LONGHAUL_BROKER, the network, the server and its user's rights";
        Check::fail("broker", format!("{shown}: {why}"), advice)
    };
    let broker = match RabbitBroker::connect(url, options) {
        Ok(broker) => broker,
        Err(refused) => return vec![away(refused.to_string())],
    };
    if let Err(why) = until_up(&*broker, PATIENCE).await {
        return vec![away(why)];
    }
    let mut checks = vec![Check::ok("broker", format!("{shown} answers"))];
    let (mut waiting, mut missing) = (Vec::new(), Vec::new());
    for queue in config.queues() {
        match broker.look(&queue).await {
            Ok(Some(bells)) => waiting.push((queue, bells)),
            Ok(None) => missing.push(queue),
            Err(BrokerError::Topology(what)) => {
                let advice = "run longhaul migrate; what is set up otherwise must be deleted first, or broker.namespace be another";
                checks.push(Check::fail("topology", what, advice));
                broker.close().await;
                return checks;
            }
            Err(BrokerError::Unavailable(why)) => {
                checks.push(Check::warn(
                    "topology",
                    format!("{queue}: {why}"),
                    "try again: it was there a moment ago",
                ));
                broker.close().await;
                return checks;
            }
        }
    }
    broker.close().await;
    checks.push(if missing.is_empty() {
        depth_check(&waiting)
    } else {
        let advice = "run longhaul migrate, or start a node: both make what is missing";
        Check::warn(
            "topology",
            format!("not there: {}", missing.join(", ")),
            advice,
        )
    });
    checks
}

fn depth_check(waiting: &[(String, usize)]) -> Check {
    let total: usize = waiting.iter().map(|(_, bells)| bells).sum();
    let found = format!("{} queues are there, with {total} bells", waiting.len());
    match waiting.iter().find(|(_, bells)| *bells > DEEP) {
        Some((queue, bells)) => {
            let advice = format!(
                "{bells} of them in {queue}: nobody answers them; is a worker for this queue running?"
            );
            Check::warn("topology", found, advice)
        }
        None => Check::ok("topology", found),
    }
}

async fn redis(config: &Config) -> Vec<Check> {
    let Some(url) = &config.redis.url else {
        return Vec::new();
    };
    let away = |why: String| {
        let advice = "nodes work without it, each with its part of the limits: check LONGHAUL_REDIS, the network and the password";
        Check::fail("redis", format!("{url}: {why}"), advice)
    };
    let redis = match Redis::open(url.reveal(), &config.redis.namespace) {
        Ok(redis) => redis,
        Err(refused) => return vec![away(refused.to_string())],
    };
    if tokio::time::timeout(PATIENCE, redis.until(true))
        .await
        .is_err()
    {
        return vec![away(match redis.state() {
            RedisState::Down(why) => why,
            RedisState::Up => "it has only just come".to_owned(),
        })];
    }
    let eviction = match redis.eviction_policy().await {
        Ok(policy) if policy == "noeviction" => Check::ok("eviction", policy),
        Ok(policy) => {
            let advice = "a full server would forget limits: set maxmemory-policy noeviction, or give Longhaul its own server";
            Check::warn("eviction", policy, advice)
        }
        Err(why) => Check::warn(
            "eviction",
            why,
            "see that its maxmemory-policy is noeviction",
        ),
    };
    vec![Check::ok("redis", format!("{url} answers")), eviction]
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn a_queue_that_nobody_serves_is_worth_a_word() {
        let of = |bells| depth_check(&[("a".to_owned(), 3), ("b".to_owned(), bells)]).state;
        assert_eq!(
            (of(0), of(DEEP), of(DEEP + 1)),
            (State::Ok, State::Ok, State::Warn)
        );
    }
}
