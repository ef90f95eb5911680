//! The configuration as types, a section each. What a key is for stands in [`super::keys`], once.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use longhaul::{
    DutySettings, FileLife, Routing, WorkerSettings, operating::WireDuration,
    server::ListenerSettings,
};
use serde::{Deserialize, Serialize};

use super::{SecretText, SecretUrl};
use crate::telemetry::LogFormat;

/// All of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Config {
    pub store: Store,
    pub broker: Broker,
    pub redis: Redis,
    pub events: Events,
    pub artifacts: Artifacts,
    pub http: Http,
    pub identity: Identity,
    pub worker: Worker,
    pub duties: Duties,
    pub routing: Routes,
    pub limits: BTreeMap<String, LimitRule>,
    pub log: Log,
    pub telemetry: Telemetry,
}

/// Where the truth is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Store {
    pub url: SecretUrl,
    pub max_connections: u32,
    pub migrate: bool,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            url: SecretUrl::new("sqlite://longhaul-data/longhaul.db"),
            max_connections: 10,
            migrate: true,
        }
    }
}

/// Who carries messages between nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Broker {
    pub url: SecretUrl,
    pub namespace: String,
    pub lanes: Lanes,
}

impl Default for Broker {
    fn default() -> Self {
        Self {
            url: SecretUrl::new("local"),
            namespace: String::new(),
            lanes: Lanes::Classic,
        }
    }
}

/// What the broker's queues are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lanes {
    Classic,
    Quorum,
}

/// What nodes share besides the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Redis {
    pub url: Option<SecretUrl>,
    pub namespace: String,
    pub nodes: u32,
}

impl Default for Redis {
    fn default() -> Self {
        Self {
            url: None,
            namespace: "longhaul".to_owned(),
            nodes: 2,
        }
    }
}

/// What the world is told.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Events {
    pub external: Vec<ExternalEvents>,
}

/// Some events of some types.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExternalEvents {
    pub types: Vec<String>,
    pub events: Vec<String>,
}

/// Files that tasks make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Artifacts {
    pub url: Option<SecretUrl>,
    pub key: Option<SecretText>,
    pub keep_free: WireDuration,
    pub keep_vip: WireDuration,
    pub keep_enterprise: WireDuration,
}

impl Default for Artifacts {
    fn default() -> Self {
        let life = FileLife::default();
        let [keep_free, keep_vip, keep_enterprise] =
            [life.free, life.vip, life.enterprise].map(WireDuration);
        Self {
            url: None,
            key: None,
            keep_free,
            keep_vip,
            keep_enterprise,
        }
    }
}

/// The HTTP API.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Http {
    pub listen: SocketAddr,
    pub allow_plain: bool,
    pub header_timeout: WireDuration,
    pub write_timeout: WireDuration,
    pub connections: usize,
    pub connections_per_address: usize,
    pub drain: WireDuration,
}

impl Default for Http {
    fn default() -> Self {
        let settings = ListenerSettings::default();
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7080)),
            allow_plain: false,
            header_timeout: WireDuration(settings.header_timeout),
            write_timeout: WireDuration(settings.write_timeout),
            connections: settings.connections,
            connections_per_address: settings.connections_per_address,
            drain: WireDuration(settings.drain),
        }
    }
}

/// How callers of the HTTP API are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdentityKind {
    Tokens,
    TrustedHeader,
    Dev,
}

impl IdentityKind {
    /// As it is written in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::TrustedHeader => "trusted-header",
            Self::Dev => "dev",
        }
    }
}

/// Who calls.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Identity {
    pub mode: IdentityKind,
    pub trusted_from: Vec<String>,
    pub environment: String,
}

impl Default for Identity {
    fn default() -> Self {
        let trusted_from = vec!["127.0.0.0/8".to_owned(), "::1/128".to_owned()];
        Self {
            mode: IdentityKind::Tokens,
            trusted_from,
            environment: "live".to_owned(),
        }
    }
}

/// What one queue gets of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueShare {
    pub reserved: usize,
    pub at_most: Option<usize>,
    pub share: usize,
}

impl Default for QueueShare {
    fn default() -> Self {
        Self {
            reserved: 0,
            at_most: None,
            share: 1,
        }
    }
}

/// What a worker offers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Worker {
    pub name: Option<String>,
    pub slots: usize,
    pub queues: BTreeMap<String, QueueShare>,
    pub types: BTreeMap<String, usize>,
    pub resources: BTreeMap<String, usize>,
    pub poll_least: WireDuration,
    pub poll_most: WireDuration,
    pub heartbeat: WireDuration,
    pub idle_heartbeat: WireDuration,
    pub heartbeat_timeout: WireDuration,
    pub stray_age: WireDuration,
    pub drain: WireDuration,
}

impl Default for Worker {
    fn default() -> Self {
        let settings = WorkerSettings::default();
        Self {
            name: None,
            slots: settings.slots,
            queues: BTreeMap::new(),
            types: BTreeMap::new(),
            resources: BTreeMap::new(),
            poll_least: WireDuration(settings.poll.least),
            poll_most: WireDuration(settings.poll.most),
            heartbeat: WireDuration(settings.heartbeat),
            idle_heartbeat: WireDuration(settings.idle_heartbeat),
            heartbeat_timeout: WireDuration(settings.heartbeat_timeout),
            stray_age: WireDuration(settings.stray_age),
            drain: WireDuration(settings.drain),
        }
    }
}

/// What one node does for all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Duties {
    pub lease: WireDuration,
    pub rescue_every: WireDuration,
    pub max_crashes: u32,
    pub silent: WireDuration,
    pub timeout_grace: WireDuration,
    pub keep_ended: WireDuration,
    pub keep_dead_letters: WireDuration,
    pub sweep_every: WireDuration,
    pub starve_after: WireDuration,
    pub keep_for_host: WireDuration,
}

impl Default for Duties {
    fn default() -> Self {
        let settings = DutySettings::default();
        Self {
            lease: WireDuration(settings.lease),
            rescue_every: WireDuration(settings.rescue_every),
            max_crashes: settings.max_crashes,
            silent: WireDuration(settings.silent),
            timeout_grace: WireDuration(settings.timeout_grace),
            keep_ended: WireDuration(settings.keep_ended),
            keep_dead_letters: WireDuration(settings.keep_dead_letters),
            sweep_every: WireDuration(settings.sweep_every),
            starve_after: WireDuration(settings.starve_after),
            keep_for_host: WireDuration(settings.keep_for_host),
        }
    }
}

/// A rule of the routing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutingRule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<WireDuration>,
    pub queue: String,
}

/// Which queue a task goes to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Routes {
    pub rules: Vec<RoutingRule>,
    pub otherwise: String,
}

impl Default for Routes {
    fn default() -> Self {
        let routing = Routing::default();
        let rule = |rule: &longhaul::Rule| RoutingRule {
            tier: rule.tier.clone(),
            at_most: rule.at_most.map(WireDuration),
            queue: rule.queue.clone(),
        };
        Self {
            rules: routing.rules.iter().map(rule).collect(),
            otherwise: routing.otherwise,
        }
    }
}

/// The rate limit of a provider or a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRule {
    pub rate: u32,
    #[serde(default = "a_second")]
    pub per: WireDuration,
    #[serde(default = "one")]
    pub burst: u32,
}

const fn a_second() -> WireDuration {
    WireDuration::from_millis(1_000)
}

const fn one() -> u32 {
    1
}

/// What is logged.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Log {
    pub format: LogFormat,
    pub level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormat::Pretty,
            level: "info".to_owned(),
        }
    }
}

/// Where traces go.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Telemetry {
    pub otlp_endpoint: Option<SecretUrl>,
}
