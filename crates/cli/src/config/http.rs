//! The sections `http` and `identity`: where the API listens, and how it identifies callers.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use longhaul::{
    operating::{TokenText, WireDuration},
    server::{Gateway, IdentityMode, ListenerSettings, Network},
};
use serde::{Deserialize, Serialize};

use super::{Config, SecretText, check_waits, keys::section};

/// The largest body of a request, in bytes.
const LARGEST_BODY: usize = 1024 * 1024;

section! {
    /// The HTTP API.
    pub struct Http with settings: ListenerSettings {
        /// Where the HTTP API listens. Port 0 takes a free one. Any address that is not loopback
        /// needs `http.allow_plain` and an identity other than `dev`.
        #[variable("LONGHAUL_LISTEN")]
        pub listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 7080)),
        /// Whether plain HTTP may leave this machine. Turn it on only behind a proxy that adds TLS:
        /// otherwise tokens are sent unencrypted.
        pub allow_plain: bool = false,
        /// How long the head of a request may take, and how long a connection may be idle between
        /// two requests.
        pub header_timeout: WireDuration = WireDuration(settings.header_timeout),
        /// How long a client may leave an answer unread.
        pub write_timeout: WireDuration = WireDuration(settings.write_timeout),
        /// Connections at once. The process needs a file handle for each.
        pub connections: usize = settings.connections,
        /// Connections at once from one address. Behind a gateway, all come from one address.
        pub connections_per_address: usize = settings.connections_per_address,
        /// Slots beyond these limits for connections that ask for `/healthz` or `/readyz`, half of
        /// them for one address. Any other request there is a 429.
        pub probe_connections: usize = settings.probe_connections,
        /// Live streams at once of one token. Further ones are a 429.
        pub streams_per_token: usize = settings.streams_per_token,
        /// Live streams at once of one owner, with all tokens together. Callers with the scope
        /// `admin` are exempt.
        pub streams_per_owner: usize = settings.streams_per_owner,
        /// Bytes of request bodies in memory at once. A body beyond is a 503, and may be sent
        /// again.
        pub body_bytes: usize = settings.body_bytes,
        /// Bytes of request bodies in memory at once of one token, or of one user without tokens.
        pub body_bytes_per_token: usize = settings.body_bytes_per_token,
        /// The least rate of a request body, in bytes a second. A body has 5 seconds and the time
        /// that its bytes take at this rate.
        pub body_rate: usize = settings.body_rate,
        /// How long open requests may take after a stop.
        pub drain: WireDuration = WireDuration(settings.drain),
    }
}

section! {
    /// How callers of the HTTP API are identified.
    pub struct Identity {
        /// How callers are identified: `tokens` (made by `longhaul token create`), `trusted-header`
        /// (a gateway sets X-User-Id, X-User-Scopes and X-User-Tier, and removes these headers from
        /// what callers send), or `dev` (every caller on this machine, loopback only).
        pub mode: IdentityKind = IdentityKind::Tokens,
        /// The networks that the gateway of `trusted-header` calls from. Calls from elsewhere are
        /// refused, whatever their headers say.
        pub trusted_from: Vec<String> = vec!["127.0.0.0/8".to_owned(), "::1/128".to_owned()],
        /// The names of this API, `tasks.example.com`, that `trusted-header` accepts in `Host` and
        /// `Origin`; empty accepts every name. Without it or `identity.gateway_secret`, a page that
        /// gives its own name the address of this API can call it from a browser there.
        pub hosts: Vec<String> = Vec::new(),
        /// A secret of at least 16 bytes that the gateway of `trusted-header` sends as
        /// `X-Gateway-Secret`. Calls without it are refused.
        pub gateway_secret: Option<SecretText> = None,
        /// The name of the deployment in new tokens, `lh_live_…`: 1 to 12 characters of a-z and
        /// 0-9.
        pub environment: String = "live".to_owned(),
    }
}

/// How callers of the HTTP API are identified.
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

impl Http {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        check_waits(&[
            ("http.header_timeout", self.header_timeout),
            ("http.write_timeout", self.write_timeout),
        ])?;

        for (name, count) in [
            ("http.connections", self.connections),
            ("http.connections_per_address", self.connections_per_address),
            ("http.probe_connections", self.probe_connections),
            ("http.streams_per_token", self.streams_per_token),
            ("http.streams_per_owner", self.streams_per_owner),
            ("http.body_rate", self.body_rate),
        ] {
            ensure!(count > 0, "{name} is 0; allowed: at least 1");
        }

        for (name, bytes) in [
            ("http.body_bytes", self.body_bytes),
            ("http.body_bytes_per_token", self.body_bytes_per_token),
        ] {
            ensure!(
                bytes >= LARGEST_BODY,
                "{name} is {bytes}; allowed: at least {LARGEST_BODY}, one body of the largest size"
            );
        }

        Ok(())
    }

    pub fn settings(&self) -> ListenerSettings {
        ListenerSettings {
            header_timeout: self.header_timeout.0,
            write_timeout: self.write_timeout.0,
            connections: self.connections,
            connections_per_address: self.connections_per_address,
            probe_connections: self.probe_connections,
            streams_per_token: self.streams_per_token,
            streams_per_owner: self.streams_per_owner,
            body_bytes: self.body_bytes,
            body_bytes_per_token: self.body_bytes_per_token,
            body_rate: self.body_rate,
            drain: self.drain.0,
        }
    }
}

impl Identity {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.gateway()?;
        // Minting a token checks the environment's name.
        TokenText::mint(&self.environment, || 0).context("identity.environment")?;

        Ok(())
    }

    pub fn settings(&self) -> anyhow::Result<IdentityMode> {
        Ok(match self.mode {
            IdentityKind::Tokens => IdentityMode::Tokens,
            IdentityKind::TrustedHeader => IdentityMode::TrustedHeader(self.gateway()?),
            IdentityKind::Dev => IdentityMode::Dev,
        })
    }

    /// Whether a page that gives its own name the address of this API could call it.
    pub fn trusts_every_page(&self) -> bool {
        self.mode == IdentityKind::TrustedHeader
            && self.hosts.is_empty()
            && self.gateway_secret.is_none()
    }

    fn gateway(&self) -> anyhow::Result<Gateway> {
        let gateway = Gateway::within(self.networks()?);
        let gateway = gateway.with_hosts(&self.hosts).context("identity.hosts")?;

        match &self.gateway_secret {
            Some(secret) => {
                let gateway = gateway.with_secret(secret.reveal());
                gateway.context("identity.gateway_secret")
            }
            None => Ok(gateway),
        }
    }

    fn networks(&self) -> anyhow::Result<Vec<Network>> {
        let networks = self.trusted_from.iter().map(|text| {
            let network = text.parse().map_err(anyhow::Error::msg);
            network.context("identity.trusted_from")
        });

        networks.collect()
    }
}

impl Config {
    /// Refuses to be reachable from other machines by mistake.
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
            "{address} is not a loopback address, and this is plain HTTP: put TLS in front and \
             listen on 127.0.0.1, or set http.allow_plain = true if something else protects it"
        );

        Ok(())
    }
}
