//! Logs and traces of the program.
//!
//! Lines go to standard error, for people or as JSON, and carry the ids of the task or request that they belong to.
//! Traces are sent only when a collector is named; otherwise nothing of them is built.

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

/// How long the last traces may take to reach their collector when the program stops.
const LAST_TRACES: Duration = Duration::from_secs(5);
/// Fields of spans that are for traces alone.
const FOR_TRACES: &str = "otel.";

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Pretty,
    /// One JSON object a line, with all fields at the top.
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

/// What operators decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,longhaul_store=debug`.
    pub level: String,
    pub format: LogFormat,
    /// Where traces are sent, as `http://collector:4318`; the path of the protocol is added.
    pub otlp_endpoint: Option<String>,
}

/// What has been started. [`Telemetry::stop`] sends what is left.
#[derive(Debug)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

/// Starts to log, and to trace if a collector is named. Within a runtime, once in a process.
pub fn start(settings: &TelemetrySettings) -> anyhow::Result<Telemetry> {
    let mut layers = vec![lines(settings, std::io::stderr)?];
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
    /// Sends the traces that have not been sent.
    pub async fn stop(self) {
        let Some(provider) = self.provider else {
            return;
        };
        let flushed = tokio::task::spawn_blocking(move || provider.shutdown());
        match tokio::time::timeout(LAST_TRACES, flushed).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the last traces could not be sent"),
            Ok(Err(_)) | Err(_) => tracing::warn!("the last traces were not sent in time"),
        }
    }
}

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// A level alone is for Longhaul: what its libraries say of their own affairs is worth a line when it is a warning.
fn filter_of(level: &str) -> String {
    // The client of RabbitMQ tells all that a server refuses as an error; whoever asked tells it where it matters.
    match level.trim().to_lowercase().as_str() {
        "info" | "debug" => format!(
            "{level},sqlx=warn,hyper=warn,h2=warn,reqwest=warn,opentelemetry=warn,lapin=off"
        ),
        "error" | "warn" => format!("{level},lapin=off"),
        _ => level.to_owned(),
    }
}

/// On a terminal, unless `NO_COLOR` says otherwise.
fn has_colours() -> bool {
    let is_refused =
        std::env::vars_os().any(|(name, value)| name == "NO_COLOR" && !value.is_empty());
    std::io::IsTerminal::is_terminal(&std::io::stderr()) && !is_refused
}

/// The lines of the log.
fn lines<W>(settings: &TelemetrySettings, writer: W) -> anyhow::Result<BoxedLayer>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(filter_of(&settings.level))
        .with_context(|| format!("{:?} is no level or filter of the log", settings.level))?;
    Ok(match settings.format {
        LogFormat::Json => json::JsonLines::new(writer).with_filter(filter).boxed(),
        LogFormat::Pretty => {
            let fields = fmt::format::debug_fn(|writer, field, value| match field.name() {
                name if name.starts_with(FOR_TRACES) => Ok(()),
                // It comes first. The others bring their space along, so that what is left out leaves none.
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
    fn a_level_alone_quiets_the_libraries_and_a_filter_is_taken_as_it_is() {
        assert!(filter_of("info").starts_with("info,sqlx=warn"));
        assert!(EnvFilter::try_new(filter_of(" DEBUG")).is_ok());
        assert_eq!(filter_of("warn"), "warn,lapin=off");
        for own in ["trace", "info,sqlx=debug", "longhaul=debug"] {
            assert_eq!(filter_of(own), own);
        }
    }
}
