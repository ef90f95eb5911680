//! Logs and traces of the program.
//!
//! Log lines go to standard error, for people or as JSON, with the ids of the task or request that
//! they belong to. Traces are made only if there is a collector to send them to.

mod flags;
mod json;
mod otlp;

use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde::{Deserialize, Serialize};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    fmt::{self, MakeWriter},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

pub use flags::LogFlags;

/// How long sending the last traces may take when the program stops.
const FLUSH_DEADLINE: Duration = Duration::from_secs(5);
/// The prefix of span fields that are for traces alone.
const FOR_TRACES: &str = "otel.";

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Pretty,
    /// One JSON object per line, with all fields at the top level.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pretty" => Ok(Self::Pretty),
            "json" => Ok(Self::Json),
            _ => Err("pretty or json".to_owned()),
        }
    }
}

/// The settings of logs and traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,longhaul_store=debug`.
    pub level: String,
    pub format: LogFormat,
    /// The collector of traces, such as `http://collector:4318`, without the path of the protocol.
    pub otlp_endpoint: Option<String>,
}

/// Running telemetry. [`Telemetry::stop`] sends the last traces.
#[derive(Debug)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

/// Starts logging, and tracing if there is a collector. Call it within a runtime, once per process.
pub fn start(settings: &TelemetrySettings) -> anyhow::Result<Telemetry> {
    let mut layers = vec![log_layer(settings, std::io::stderr)?];
    let provider = settings
        .otlp_endpoint
        .as_deref()
        .map(otlp::provider)
        .transpose()?;

    layers.extend(provider.as_ref().map(otlp::layer));
    tracing_subscriber::registry()
        .with(layers)
        .try_init()
        .context("logging was started before")?;

    Ok(Telemetry { provider })
}

impl Telemetry {
    /// Sends the traces that have not been sent yet.
    pub async fn stop(self) {
        let Some(provider) = self.provider else {
            return;
        };

        // Shutting down blocks until all is sent, so it runs on a thread of its own.
        let flushed = tokio::task::spawn_blocking(move || provider.shutdown());
        match tokio::time::timeout(FLUSH_DEADLINE, flushed).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the last traces could not be sent"),
            Ok(Err(_)) | Err(_) => tracing::warn!("the last traces were not sent in time"),
        }
    }
}

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// The filter for a level. A plain level is for Longhaul itself: from libraries, only warnings are
/// logged.
fn filter_of(level: &str) -> String {
    // The client of RabbitMQ logs every refusal of a server as an error. Its callers log those that
    // matter.
    match level.trim().to_lowercase().as_str() {
        "info" | "debug" => format!(
            "{level},sqlx=warn,hyper=warn,h2=warn,reqwest=warn,opentelemetry=warn,lapin=off"
        ),
        "error" | "warn" => format!("{level},lapin=off"),
        _ => level.to_owned(),
    }
}

/// Whether standard error is a terminal and `NO_COLOR` is not set.
fn has_colours() -> bool {
    let is_off = std::env::vars_os().any(|(name, value)| name == "NO_COLOR" && !value.is_empty());
    std::io::IsTerminal::is_terminal(&std::io::stderr()) && !is_off
}

/// The layer that writes log lines.
fn log_layer<W>(settings: &TelemetrySettings, writer: W) -> anyhow::Result<BoxedLayer>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(filter_of(&settings.level))
        .with_context(|| format!("{:?} is not a log level or filter", settings.level))?;

    Ok(match settings.format {
        LogFormat::Json => json::JsonLog::new(writer).with_filter(filter).boxed(),
        LogFormat::Pretty => {
            let fields = fmt::format::debug_fn(|writer, field, value| match field.name() {
                name if name.starts_with(FOR_TRACES) => Ok(()),
                // The message comes first. Other fields write the space before them, so that a
                // skipped one leaves none.
                "message" => write!(writer, "{value:?}"),
                name => write!(writer, " {name}={value:?}"),
            });

            fmt::layer()
                .with_ansi(has_colours())
                .fmt_fields(fields)
                .with_writer(writer)
                .with_filter(filter)
                .boxed()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_quiets_libraries_and_a_filter_is_unchanged() {
        assert!(filter_of("info").starts_with("info,sqlx=warn"));
        assert!(EnvFilter::try_new(filter_of(" DEBUG")).is_ok());
        assert_eq!(filter_of("warn"), "warn,lapin=off");

        for own in ["trace", "info,sqlx=debug", "longhaul=debug"] {
            assert_eq!(filter_of(own), own);
        }
    }
}
