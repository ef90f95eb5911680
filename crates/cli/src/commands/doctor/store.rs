//! The store: whether it answers, its schema, its durability, its clock, and its tokens.

use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul::operating::{
    AccessToken, Clock as _, Leases as _, SchemaState, SqlStore, SystemClock, TaskReads,
    TokenStanding, Tokens, bounds,
};

use super::Check;
use crate::config::{Config, IdentityKind};

/// How long the store may take for all checks.
const DEADLINE: Duration = Duration::from_secs(15);
/// Milliseconds between the clocks above which this is a warning, and above which it is a failure.
const APART_WARN_MS: u64 = 1_000;
const APART_FAIL_MS: u64 = 60_000;
/// A token that expires sooner is a warning, in milliseconds: ten days.
const EXPIRES_SOON_MS: u64 = 10 * 24 * 3_600 * 1_000;

pub(super) async fn examine(config: &Config) -> Vec<Check> {
    if let Some(file) = config.store_file()
        && !file.exists()
    {
        return vec![missing(config, &file)];
    }

    match tokio::time::timeout(DEADLINE, examine_open(config)).await {
        Ok(checks) => checks,
        Err(_) => vec![down(config, "it does not answer in time".to_owned())],
    }
}

/// A file that is not there yet, or one that was taken away from beside its log.
fn missing(config: &Config, file: &Path) -> Check {
    let log = PathBuf::from(format!("{}-wal", file.display()));
    if log.metadata().is_ok_and(|log| log.len() > 0) {
        let found = format!(
            "{} is missing, and {} has commits of a database that was there",
            file.display(),
            log.display()
        );
        let advice = "put the database back, or move its -wal away to begin with an empty store";
        return Check::fail("store", found, advice.to_owned());
    }

    let url = &config.store.url;
    let found = format!("{url} does not exist yet; the first start makes it");
    Check::ok("store", found)
}

fn down(config: &Config, why: String) -> Check {
    let url = &config.store.url;
    let advice = match config.store_file() {
        Some(_) => {
            format!(
                "check that LONGHAUL_STORE ({url}) names a file of Longhaul that this user can \
                 read and write"
            )
        }
        None => {
            format!("check LONGHAUL_STORE ({url}), the network, the server and its user's rights")
        }
    };

    Check::fail("store", why, advice)
}

async fn examine_open(config: &Config) -> Vec<Check> {
    let mut options = config.store_options();
    options.is_beside = true;
    let store = match SqlStore::connect(config.store.url.reveal(), options).await {
        Ok(store) => store,
        Err(error) => return vec![down(config, error.to_string())],
    };

    let mut checks = vec![Check::ok("store", format!("{} answers", config.store.url))];
    let schema = store.schema().await;
    let is_current = schema
        .as_ref()
        .is_ok_and(|schema| schema.found == schema.known);

    checks.push(match schema {
        Ok(schema) => schema_check(config, &schema),
        Err(error) => down(config, error.to_string()),
    });
    checks.push(match store.durability().await {
        Ok(settings) => durability_check(&settings),
        Err(error) => down(config, error.to_string()),
    });

    // The remaining checks read tables that an old or damaged schema may not have.
    if is_current {
        if let Err(error) = store.check_schema().await {
            checks.push(down(config, error.to_string()));
            store.close().await;
            return checks;
        }

        checks.push(match store.is_embedded() {
            true => lead_check(config, &store).await,
            false => clock_check(config, &store).await,
        });
        if config.identity.mode == IdentityKind::Tokens {
            checks.push(token_check(config, &store).await);
        }
    }

    store.close().await;
    checks
}

fn schema_check(config: &Config, schema: &SchemaState) -> Check {
    let found = format!(
        "migration {:04}; this program has {:04}",
        schema.found, schema.known
    );
    if schema.found > schema.known {
        return Check::fail(
            "schema",
            found,
            "the database was written by a newer program: run that one",
        );
    }

    if schema.pending.is_empty() {
        return Check::ok("schema", found);
    }

    if config.store.migrate {
        return Check::warn(
            "schema",
            found,
            "the next start migrates it, or longhaul migrate does",
        );
    }

    Check::fail(
        "schema",
        found,
        "run longhaul migrate: store.migrate is off, so no node will start",
    )
}

/// Whether a confirmed commit survives a power cut.
fn durability_check(settings: &str) -> Check {
    let is_durable = match settings.split_once('=').map(|(name, _)| name) {
        Some("fsync") => {
            settings.contains("fsync=on") && !settings.contains("synchronous_commit=off")
        }
        Some("innodb_flush_log_at_trx_commit") => settings.ends_with("=1"),
        _ => settings.starts_with("wal") && settings.ends_with("synchronous=2"),
    };
    if is_durable {
        return Check::ok("durability", settings);
    }

    let advice = "a power cut can lose accepted tasks: turn on fsync and synchronous_commit on \
                  PostgreSQL, set innodb_flush_log_at_trx_commit=1 on MySQL";
    Check::warn("durability", settings, advice)
}

async fn clock_check(config: &Config, store: &SqlStore) -> Check {
    let clock = SystemClock::default();
    let before = clock.now();
    let store_time = match store.now().await {
        Ok(time) => time,
        Err(error) => return down(config, error.to_string()),
    };
    let after = clock.now();

    // A difference within the two readings may be the time of the call.
    let ahead = before.micros_since(store_time);
    let behind = store_time.micros_since(after);
    let apart_ms = ahead.max(behind) / 1_000;
    let found = format!("this machine and the store are {apart_ms} ms apart");

    match apart_ms {
        0..APART_WARN_MS => Check::ok("clock", found),
        APART_WARN_MS..APART_FAIL_MS => {
            Check::warn("clock", found, "synchronize both with the same time server")
        }
        _ => Check::fail(
            "clock",
            found,
            "set the clocks: times in logs and ids are wrong",
        ),
    }
}

/// The clock of an embedded store is that of the process that has it open. Heartbeats show it.
async fn lead_check(config: &Config, store: &SqlStore) -> Check {
    let nodes = match store.list_nodes().await {
        Ok(nodes) => nodes,
        Err(error) => return down(config, error.to_string()),
    };
    let now = SystemClock::default().now();
    let alive = nodes.iter().filter(|node| node.lost_at.is_none());
    let leads = alive.map(|node| node.heartbeat_at.micros_since(now) / 1_000);

    match leads.max().unwrap_or(0) {
        0..APART_WARN_MS => Check::ok("clock", "the store is not ahead of this machine"),
        lead_ms => Check::warn(
            "clock",
            format!("the store is {lead_ms} ms ahead of this machine, whose clock was set back"),
            "tasks with a run time start that much early; the lead shrinks by half a second each \
             second, and a restart of the node ends it",
        ),
    }
}

async fn token_check(config: &Config, store: &SqlStore) -> Check {
    let now = match store.now().await {
        Ok(now) => now,
        Err(error) => return down(config, error.to_string()),
    };
    let tokens = match store.list_tokens(None, bounds::PAGE_SIZE).await {
        Ok(tokens) => tokens,
        Err(error) => return down(config, error.to_string()),
    };

    let is_good = |token: &AccessToken, at| token.standing(at) == TokenStanding::Good;
    let good: Vec<_> = tokens.iter().filter(|token| is_good(token, now)).collect();
    let soon = now.plus_ms(EXPIRES_SOON_MS);
    let expiring = good.iter().filter(|token| !is_good(token, soon)).take(5);
    let expiring: Vec<&str> = expiring.map(|token| token.prefix.as_str()).collect();

    let found = format!("{} good tokens", good.len());

    if good.is_empty() {
        let advice = "no caller has access: longhaul token create --owner u-1 --scopes \
                      tasks:read,tasks:write";
        return Check::warn("tokens", found, advice);
    }

    if expiring.is_empty() {
        return Check::ok("tokens", found);
    }

    Check::warn(
        "tokens",
        found,
        format!("these expire within ten days: {}", expiring.join(", ")),
    )
}

#[cfg(test)]
mod tests {
    use super::super::CheckState;
    use super::*;

    #[test]
    fn a_commit_that_a_power_cut_loses_is_a_warning() {
        for settings in [
            "wal, synchronous=2",
            "fsync=on, synchronous_commit=on",
            "innodb_flush_log_at_trx_commit=1",
        ] {
            let state = durability_check(settings).state;
            assert_eq!(state, CheckState::Ok, "{settings}");
        }

        for settings in [
            "wal, synchronous=1",
            "memory, synchronous=2",
            "fsync=off, synchronous_commit=on",
            "fsync=on, synchronous_commit=off",
            "innodb_flush_log_at_trx_commit=2",
        ] {
            let state = durability_check(settings).state;
            assert_eq!(state, CheckState::Warn, "{settings}");
        }
    }
}
