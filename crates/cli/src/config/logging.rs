//! The sections `log` and `telemetry`: what is logged, and where traces go.

use anyhow::ensure;

use super::{SecretUrl, keys::section};
use crate::telemetry::LogFormat;

section! {
    /// What is logged.
    pub struct Log {
        /// The format of log lines: `pretty` for people, `json` for collectors.
        pub format: LogFormat = LogFormat::Pretty,
        /// What is logged: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as
        /// `info,longhaul_store=debug`.
        pub level: String = "info".to_owned(),
    }
}

section! {
    /// Where traces go.
    pub struct Telemetry {
        /// The OpenTelemetry collector that receives traces: `http://127.0.0.1:4318`. Without it,
        /// no traces are made.
        pub otlp_endpoint: Option<SecretUrl> = None,
    }
}

impl Log {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let level = self.level.parse::<tracing_subscriber::EnvFilter>();
        level.map_err(|error| anyhow::anyhow!("log.level is {:?}: {error}", self.level))?;

        Ok(())
    }
}

impl Telemetry {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if let Some(url) = &self.otlp_endpoint {
            ensure!(
                ["http", "https"].contains(&url.scheme()),
                "telemetry.otlp_endpoint is {url}; allowed: http://collector:4318 or https://…"
            );
        }

        Ok(())
    }
}
