//! The configuration as the rest of the program takes it, checked as a whole.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use longhaul::{
    DutySettings, EventKind, EventRule, EventSelection, FileLife, LaneKind, Limit, LimitRules,
    QueueSlots, RabbitOptions, Routing, Rule, WorkerSettings,
    operating::{PollSettings, StoreOptions},
    server::{IdentityMode, ListenerSettings, Network},
};

use super::{Config, IdentityKind, Lanes};

/// The name under `limits` that is for keys without a limit of their own.
const DEFAULT_LIMIT: &str = "default";

impl Config {
    /// Refuses what no part of the program can do, and what is not safe.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let store = self.store.url.scheme();
        ensure!(
            ["sqlite", "postgres", "postgresql", "mysql", "mariadb"].contains(&store),
            "store.url starts with {store:?}; allowed: sqlite://path/to/file.db, postgres://…, mysql://…"
        );
        let is_rabbitmq = ["amqp", "amqps"].contains(&self.broker.url.scheme());
        ensure!(
            is_rabbitmq || self.broker.url.reveal() == "local",
            "broker.url is {}; allowed: local, amqp://user:password@host/vhost, amqps://…",
            self.broker.url
        );
        if let Some(url) = &self.redis.url {
            let is_redis = ["redis", "rediss"].contains(&url.scheme());
            ensure!(
                is_redis,
                "redis.url is {url}; allowed: redis://[user:password@]host[:port][/database], rediss://…"
            );
        }
        ensure!(
            self.redis.nodes >= 1,
            "redis.nodes is 0; allowed: at least 1"
        );
        let is_told = !self.external_events()?.is_empty();
        ensure!(
            is_rabbitmq || !is_told,
            "events.external names events, and broker.url names nobody who carries them"
        );
        if let Some(url) = &self.artifacts.url {
            let folder = url.reveal().strip_prefix("file://").unwrap_or_default();
            ensure!(
                !folder.is_empty(),
                "artifacts.url is {url}; this version knows only file://folder"
            );
        }
        ensure!(
            self.store.max_connections >= 2,
            "store.max_connections is below 2: a node needs at least two"
        );
        ensure!(
            self.worker.slots >= 1,
            "worker.slots is 0; a node without a worker has other --roles"
        );
        if let Some(url) = &self.telemetry.otlp_endpoint {
            let is_http = ["http", "https"].contains(&url.scheme());
            ensure!(
                is_http,
                "telemetry.otlp_endpoint is {url}; allowed: http://collector:4318 or https://…"
            );
        }
        let level = self.log.level.parse::<tracing_subscriber::EnvFilter>();
        level.map_err(|error| anyhow::anyhow!("log.level is {:?}: {error}", self.log.level))?;
        self.networks()?;
        self.artifact_key()?;
        self.check_bounds()
    }

    /// Refuses to be open to the world by mistake.
    pub fn check_listening(&self) -> anyhow::Result<()> {
        let address = self.http.listen;
        if address.ip().is_loopback() {
            return Ok(());
        }
        ensure!(
            self.identity.mode != IdentityKind::Dev,
            "identity.mode = \"dev\" trusts every caller, and {address} is not a loopback address; \
             use identity.mode = \"tokens\" or \"trusted-header\""
        );
        ensure!(
            self.http.allow_plain,
            "{address} is not a loopback address, and this is plain HTTP: put TLS in front and listen on 127.0.0.1, or \
             set http.allow_plain = true if something else protects it"
        );
        Ok(())
    }

    /// The RabbitMQ server, if there is one.
    pub fn rabbitmq(&self) -> Option<(&str, RabbitOptions)> {
        let lanes = match self.broker.lanes {
            Lanes::Classic => LaneKind::Classic,
            Lanes::Quorum => LaneKind::Quorum,
        };
        let options = RabbitOptions {
            namespace: self.broker.namespace.clone(),
            lanes,
        };
        (self.broker.url.reveal() != "local").then(|| (self.broker.url.reveal(), options))
    }

    /// What the world is told.
    pub fn external_events(&self) -> anyhow::Result<Vec<EventRule>> {
        let event = |name: &String| {
            EventKind::parse(name).with_context(|| {
                let known: Vec<_> = EventKind::external().map(EventKind::as_str).collect();
                format!(
                    "events.external names {name:?}; allowed: {}",
                    known.join(", ")
                )
            })
        };
        let rule = |rule: &super::ExternalEvents| {
            let events = rule
                .events
                .iter()
                .map(event)
                .collect::<anyhow::Result<Vec<_>>>()?;
            anyhow::Ok(EventRule {
                task_types: rule.types.clone(),
                events,
            })
        };
        let rules = self
            .events
            .external
            .iter()
            .map(rule)
            .collect::<anyhow::Result<Vec<_>>>()?;
        EventSelection::new(&rules)?;
        Ok(rules)
    }

    /// Every queue that the configuration names.
    pub fn queues(&self) -> Vec<String> {
        self.routing()
            .queues()
            .into_iter()
            .chain(self.worker.queues.keys().cloned())
            .collect()
    }

    pub fn store_options(&self) -> StoreOptions {
        StoreOptions {
            max_connections: self.store.max_connections,
            ..StoreOptions::default()
        }
    }

    /// The file of an embedded store.
    pub fn store_file(&self) -> Option<PathBuf> {
        let (scheme, path) = self.store.url.reveal().split_once("://")?;
        (scheme == "sqlite").then(|| PathBuf::from(path.split('?').next().unwrap_or(path)))
    }

    /// The folder for files that tasks make.
    pub fn artifacts_folder(&self) -> PathBuf {
        if let Some(url) = &self.artifacts.url {
            return PathBuf::from(url.reveal().strip_prefix("file://").unwrap_or_default());
        }
        match self.store_file() {
            Some(file) => PathBuf::from(format!("{}.artifacts", file.display())),
            None => Path::new("longhaul-artifacts").to_owned(),
        }
    }

    /// How long those files are kept.
    pub fn file_life(&self) -> FileLife {
        let kept = &self.artifacts;
        FileLife {
            free: kept.keep_free.0,
            vip: kept.keep_vip.0,
            enterprise: kept.keep_enterprise.0,
        }
    }

    /// What their URLs are signed with, if it is not the key beside their folder.
    pub fn artifact_key(&self) -> anyhow::Result<Option<[u8; 32]>> {
        let Some(text) = &self.artifacts.key else {
            return Ok(None);
        };
        let digits = text.reveal().as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        let key = bytes
            .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
            .filter(|_| digits.len() == 64);
        Ok(Some(key.context(
            "artifacts.key is not 64 hexadecimal digits; openssl rand -hex 32 makes one",
        )?))
    }

    pub fn identity_mode(&self) -> anyhow::Result<IdentityMode> {
        Ok(match self.identity.mode {
            IdentityKind::Tokens => IdentityMode::Tokens,
            IdentityKind::TrustedHeader => IdentityMode::TrustedHeader {
                from: self.networks()?,
            },
            IdentityKind::Dev => IdentityMode::Dev,
        })
    }

    fn networks(&self) -> anyhow::Result<Vec<Network>> {
        let read = |text: &String| {
            text.parse()
                .map_err(anyhow::Error::msg)
                .context("identity.trusted_from")
        };
        self.identity.trusted_from.iter().map(read).collect()
    }

    pub fn listener_settings(&self) -> ListenerSettings {
        ListenerSettings {
            header_timeout: self.http.header_timeout.0,
            write_timeout: self.http.write_timeout.0,
            connections: self.http.connections,
            connections_per_address: self.http.connections_per_address,
            drain: self.http.drain.0,
        }
    }

    /// `host` is what this machine is called.
    pub fn worker_settings(&self, host: &str, duties: bool) -> WorkerSettings {
        let worker = &self.worker;
        let queue = |(name, share): (&String, &super::QueueShare)| QueueSlots {
            name: name.clone(),
            reserved: share.reserved,
            at_most: share.at_most,
            share: share.share,
        };
        WorkerSettings {
            name: worker.name.clone().unwrap_or_else(|| host.to_owned()),
            host: host.to_owned(),
            slots: worker.slots,
            queues: worker.queues.iter().map(queue).collect(),
            resources: worker.resources.clone().into_iter().collect(),
            types: worker.types.clone().into_iter().collect(),
            poll: PollSettings {
                least: worker.poll_least.0,
                most: worker.poll_most.0,
            },
            heartbeat: worker.heartbeat.0,
            idle_heartbeat: worker.idle_heartbeat.0,
            heartbeat_timeout: worker.heartbeat_timeout.0,
            stray_age: worker.stray_age.0,
            drain: worker.drain.0,
            duties,
            asks_for_kept: !self.duties.keep_for_host.0.is_zero(),
        }
    }

    pub fn duty_settings(&self) -> DutySettings {
        let duties = &self.duties;
        DutySettings {
            lease: duties.lease.0,
            rescue_every: duties.rescue_every.0,
            max_crashes: duties.max_crashes,
            silent: duties.silent.0,
            timeout_grace: duties.timeout_grace.0,
            keep_ended: duties.keep_ended.0,
            keep_dead_letters: duties.keep_dead_letters.0,
            sweep_every: duties.sweep_every.0,
            starve_after: duties.starve_after.0,
            keep_for_host: duties.keep_for_host.0,
        }
    }

    pub fn routing(&self) -> Routing {
        let rule = |rule: &super::RoutingRule| Rule {
            tier: rule.tier.clone(),
            at_most: rule.at_most.map(|most| most.0),
            queue: rule.queue.clone(),
        };
        let rules = self.routing.rules.iter().map(rule).collect();
        Routing {
            rules,
            otherwise: self.routing.otherwise.clone(),
        }
    }

    pub fn limit_rules(&self) -> LimitRules {
        let limit = |rule: &super::LimitRule| Limit {
            permits: rule.rate,
            per_ms: rule.per.as_millis(),
            burst: rule.burst,
        };
        let named = self
            .limits
            .iter()
            .filter(|(name, _)| *name != DEFAULT_LIMIT);
        LimitRules {
            limits: named
                .map(|(name, rule)| (name.clone(), limit(rule)))
                .collect(),
            default: self.limits.get(DEFAULT_LIMIT).map(limit),
        }
    }
}
