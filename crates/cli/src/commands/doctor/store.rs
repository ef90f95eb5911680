//! The store: whether it answers, its schema, what its commits are worth, its clock, and who may call.

use std::time::Duration;

use longhaul::operating::{
    Clock as _, SchemaState, SqlStore, Store as _, SystemClock, TokenStanding, bounds,
};

use super::Check;
use crate::config::Config;

/// How long the store may take to answer all of it.
const PATIENCE: Duration = Duration::from_secs(15);
/// How far the clocks may be apart before people should know, and before it is wrong, in milliseconds.
const APART_WARN_MS: u64 = 1_000;
const APART_FAIL_MS: u64 = 60_000;
/// A token that ends sooner is worth a word, in milliseconds: ten days.
const ENDS_SOON_MS: u64 = 10 * 24 * 3_600 * 1_000;

pub(super) async fn examine(config: &Config, is_asked_for_tokens: bool) -> Vec<Check> {
    if config.store_file().is_some_and(|file| !file.exists()) {
        return vec![Check::ok(
            "store",
            format!(
                "{} is not there yet; the first start makes it",
                config.store.url
            ),
        )];
    }
    let looked = tokio::time::timeout(PATIENCE, look(config, is_asked_for_tokens)).await;
    looked.unwrap_or_else(|_| vec![away(config, "it does not answer in time".to_owned())])
}

fn away(config: &Config, why: String) -> Check {
    let url = &config.store.url;
    let advice = match config.store_file() {
        Some(_) => {
            format!(
                "check that LONGHAUL_STORE ({url}) names a file of Longhaul's that this user may read and write"
            )
        }
        None => {
            format!("check LONGHAUL_STORE ({url}), the network, the server and its user's rights")
        }
    };
    Check::fail("store", why, advice)
}

async fn look(config: &Config, is_asked_for_tokens: bool) -> Vec<Check> {
    let mut options = config.store_options();
    options.is_beside = true;
    let store = match SqlStore::connect(config.store.url.reveal(), options).await {
        Ok(store) => store,
        Err(error) => return vec![away(config, error.to_string())],
    };
    let mut checks = vec![Check::ok("store", format!("{} answers", config.store.url))];
    let schema = store.schema().await;
    let is_current = schema
        .as_ref()
        .is_ok_and(|schema| schema.found == schema.known);
    checks.push(match schema {
        Ok(schema) => schema_check(config, &schema),
        Err(error) => away(config, error.to_string()),
    });
    checks.push(match store.durability().await {
        Ok(told) => durability_check(&told),
        Err(error) => away(config, error.to_string()),
    });
    // What follows asks for things that an old schema may not have.
    if is_current {
        checks.push(clock_check(config, &store).await);
        if is_asked_for_tokens {
            checks.push(token_check(config, &store).await);
        }
    }
    store.close().await;
    checks
}

fn schema_check(config: &Config, schema: &SchemaState) -> Check {
    let told = format!(
        "migration {:04}; this program has {:04}",
        schema.found, schema.known
    );
    if schema.found > schema.known {
        return Check::fail(
            "schema",
            told,
            "the database was written by a newer program: run that one",
        );
    }
    if schema.pending.is_empty() {
        return Check::ok("schema", told);
    }
    if config.store.migrate {
        return Check::warn(
            "schema",
            told,
            "the next start brings it up to date, or longhaul migrate does",
        );
    }
    Check::fail(
        "schema",
        told,
        "run longhaul migrate: store.migrate is off, so no node will start",
    )
}

/// Whether a commit that was answered survives a power cut.
fn durability_check(told: &str) -> Check {
    let is_durable = match told.split_once('=').map(|(name, _)| name) {
        Some("fsync") => told.contains("fsync=on") && !told.contains("synchronous_commit=off"),
        Some("innodb_flush_log_at_trx_commit") => told.ends_with("=1"),
        _ => told.starts_with("wal") && told.ends_with("synchronous=2"),
    };
    if is_durable {
        return Check::ok("durability", told);
    }
    let advice = "a power cut can lose tasks that were accepted: turn on fsync and synchronous_commit on PostgreSQL, \
                  set innodb_flush_log_at_trx_commit=1 on MySQL";
    Check::warn("durability", told, advice)
}

async fn clock_check(config: &Config, store: &SqlStore) -> Check {
    let clock = SystemClock::default();
    let before = clock.now();
    let told = match store.now().await {
        Ok(told) => told,
        Err(error) => return away(config, error.to_string()),
    };
    let after = clock.now();
    // Whatever lies between the two readings is the way there and back.
    let apart_ms = before.micros_since(told).max(told.micros_since(after)) / 1_000;
    let found = format!("this machine and the store are {apart_ms} ms apart");
    match apart_ms {
        0..APART_WARN_MS => Check::ok("clock", found),
        APART_WARN_MS..APART_FAIL_MS => {
            Check::warn("clock", found, "have both follow the same time server")
        }
        _ => Check::fail(
            "clock",
            found,
            "set the clocks: times in logs and ids would be wrong",
        ),
    }
}

async fn token_check(config: &Config, store: &SqlStore) -> Check {
    let (now, tokens) = match (
        store.now().await,
        store.list_tokens(None, bounds::PAGE_SIZE).await,
    ) {
        (Ok(now), Ok(tokens)) => (now, tokens),
        (Err(error), _) | (_, Err(error)) => return away(config, error.to_string()),
    };
    let good: Vec<_> = tokens
        .iter()
        .filter(|token| token.standing(now) == TokenStanding::Good)
        .collect();
    let soon = good
        .iter()
        .filter(|token| token.standing(now.plus_ms(ENDS_SOON_MS)) != TokenStanding::Good);
    let soon: Vec<&str> = soon.map(|token| token.prefix.as_str()).take(5).collect();
    let found = format!("{} good tokens", good.len());
    if good.is_empty() {
        let advice =
            "nobody can call: longhaul token create --owner u-1 --scopes tasks:read,tasks:write";
        return Check::warn("tokens", found, advice);
    }
    if soon.is_empty() {
        return Check::ok("tokens", found);
    }
    Check::warn(
        "tokens",
        found,
        format!("these end within ten days: {}", soon.join(", ")),
    )
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn a_commit_that_a_power_cut_loses_is_worth_a_warning() {
        for told in [
            "wal, synchronous=2",
            "fsync=on, synchronous_commit=on",
            "innodb_flush_log_at_trx_commit=1",
        ] {
            assert_eq!(durability_check(told).state, State::Ok, "{told}");
        }
        for told in [
            "wal, synchronous=1",
            "memory, synchronous=2",
            "fsync=off, synchronous_commit=on",
            "fsync=on, synchronous_commit=off",
            "innodb_flush_log_at_trx_commit=2",
        ] {
            assert_eq!(durability_check(told).state, State::Warn, "{told}");
        }
    }
}
