//! Sends traces to a collector, by OTLP over HTTP.

use std::sync::Arc;

use anyhow::Context as _;
use longhaul::trace::{self, TraceContext};
use opentelemetry::{
    Context, KeyValue,
    trace::{
        SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
        TracerProvider as _,
    },
};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource, runtime,
    trace::{SdkTracerProvider, span_processor_with_async_runtime::BatchSpanProcessor},
};
use tracing::{Span, level_filters::LevelFilter};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Layer as _, filter::Targets};

use super::BoxedLayer;

const NAME: &str = "longhaul";

/// Sends spans to the collector in batches. Tasks continue the traces of their requests.
pub(super) fn provider(endpoint: &str) -> anyhow::Result<SdkTracerProvider> {
    let address = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(address)
        .build()
        .context(
            "traces cannot be sent to the collector: use an address such as http://collector:4318",
        )?;

    let provider = SdkTracerProvider::builder()
        .with_resource(
            Resource::builder()
                .with_service_name(NAME)
                .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
                .build(),
        )
        .with_span_processor(BatchSpanProcessor::builder(exporter, runtime::Tokio).build())
        .build();

    trace::install(Arc::new(Spans));
    Ok(provider)
}

/// The layer that records spans of Longhaul, without those of its libraries.
pub(super) fn layer(provider: &SdkTracerProvider) -> BoxedLayer {
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(NAME))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(Targets::new().with_target(NAME, LevelFilter::INFO))
        .boxed()
}

#[derive(Debug)]
struct Spans;

impl trace::Tracer for Spans {
    fn attach(&self, span: &Span, from: &TraceContext) {
        let remote = SpanContext::new(
            TraceId::from(from.trace_id()),
            SpanId::from(from.span_id()),
            TraceFlags::new(from.flags()),
            true,
            TraceState::NONE,
        );

        // This fails only for a span that is not recorded.
        let _ = span.set_parent(Context::new().with_remote_span_context(remote));
    }

    fn context_of(&self, span: &Span) -> Option<TraceContext> {
        let context = span.context();
        let recorded = context.span().span_context().clone();
        let trace_id = recorded.trace_id().to_bytes();
        let span_id = recorded.span_id().to_bytes();
        let flags = recorded.trace_flags().to_u8();

        TraceContext::new(
            u128::from_be_bytes(trace_id),
            u64::from_be_bytes(span_id),
            flags,
        )
    }
}
