//! The options for logs and traces. They override the configuration.

use super::{LogFormat, TelemetrySettings};
use crate::config::Config;

/// Options that every command takes.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Logs and traces")]
pub struct LogFlags {
    /// What is logged: error, warn, info, debug, trace, or a filter such as
    /// `info,longhaul_store=debug`.
    #[arg(long, global = true)]
    log: Option<String>,
    /// The format of log lines: pretty or json.
    #[arg(long, global = true)]
    log_format: Option<LogFormat>,
    /// The collector that receives traces by OTLP over HTTP, such as http://127.0.0.1:4318. Without
    /// it, the configuration and then the variable OTEL_EXPORTER_OTLP_ENDPOINT count; without any,
    /// nothing is sent.
    #[arg(long, global = true)]
    otlp_endpoint: Option<String>,
}

impl LogFlags {
    /// The configured settings, overridden by these options.
    pub fn over(&self, config: &Config) -> TelemetrySettings {
        let configured = config.telemetry.otlp_endpoint.as_ref();
        let configured = configured.map(|url| url.reveal().to_owned());

        TelemetrySettings {
            level: self.log.clone().unwrap_or_else(|| config.log.level.clone()),
            format: self.log_format.unwrap_or(config.log.format),
            otlp_endpoint: self.otlp_endpoint.clone().or(configured).or_else(collector),
        }
    }
}

/// The collector in the environment, in the variable that OpenTelemetry defines.
#[expect(
    clippy::disallowed_methods,
    reason = "the program's own edge: it is passed in from here"
)]
fn collector() -> Option<String> {
    std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT")
        .ok()
        .filter(|address| !address.is_empty())
}
