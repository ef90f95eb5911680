//! Traces for a collector, by OTLP over HTTP.

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

/// Sends batches of spans to the collector, and has tasks go on with the traces of their requests.
pub(super) fn provider(endpoint: &str) -> anyhow::Result<SdkTracerProvider> {
    let address = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(address)
        .build()
        .context(
            "traces cannot be sent to the collector: its address must be as http://collector:4318",
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

/// Spans of Longhaul, and not those of the libraries below it.
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
        // It fails for a span that nobody records.
        let _ = span.set_parent(Context::new().with_remote_span_context(remote));
    }

    fn context_of(&self, span: &Span) -> Option<TraceContext> {
        let context = span.context();
        let recorded = context.span().span_context().clone();
        let (trace_id, span_id) = (
            recorded.trace_id().to_bytes(),
            recorded.span_id().to_bytes(),
        );
        let flags = recorded.trace_flags().to_u8();
        TraceContext::new(
            u128::from_be_bytes(trace_id),
            u64::from_be_bytes(span_id),
            flags,
        )
    }
}
