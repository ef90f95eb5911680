//! Logs and metrics of every request.
//!
//! A caller may send a request id (`X-Request-Id`), a correlation id (`X-Correlation-Id`) and a
//! trace (`traceparent`). A missing or invalid request id or trace is generated; an invalid header
//! never fails the request.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use axum::{
    extract::{FromRequestParts, MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, request::Parts},
    middleware::Next,
    response::Response,
};
use longhaul_api::Problem;
use longhaul_domain::bounds;
use longhaul_engine::{
    Metrics,
    metrics::registry::{Kind, MetricFamily},
    trace::{self, TraceContext},
};
use parking_lot::RwLock;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};
use rand::RngExt as _;
use tracing::{Instrument as _, Span, field};

use crate::{api::Api, problem, router::routes};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
const TRACE: HeaderName = HeaderName::from_static("traceparent");
/// The route label of unknown paths.
const NO_ROUTE: &str = "none";

/// The ids of a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestIds {
    request_id: String,
    /// From either header. It becomes the correlation id of tasks that name none.
    pub(crate) correlation_id: Option<String>,
    /// The parent of the tasks' spans.
    pub(crate) trace: Option<TraceContext>,
}

impl<S: Send + Sync> FromRequestParts<S> for RequestIds {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let none = || Self {
            request_id: String::new(),
            correlation_id: None,
            trace: None,
        };
        Ok(parts.extensions.get().cloned().unwrap_or_else(none))
    }
}

pub(crate) async fn observe(
    State(api): State<Arc<Api>>,
    mut request: Request,
    next: Next,
) -> Response {
    let since = Instant::now();
    let method = method_label(request.method());
    let path = request.extensions().get::<MatchedPath>();
    let route = path.map_or(NO_ROUTE, |path| api.http.route(path.as_str()));

    let (ids, span) = request_span(request.headers(), method, route);
    request.extensions_mut().insert(ids.clone());
    let mut response = next.run(request).instrument(span.clone()).await;

    let status = response.status().as_u16();
    span.in_scope(|| tracing::debug!(status, "request answered"));
    api.http.count((route, method, status), since);
    add_ids(&mut response, &ids);

    response
}

/// The ids of a request, and the span of its log lines.
fn request_span(
    headers: &HeaderMap,
    method: &'static str,
    route: &'static str,
) -> (RequestIds, Span) {
    let given_id = valid_name(headers, &REQUEST_ID);
    let correlation_id = valid_name(headers, &CORRELATION_ID)
        .or(given_id)
        .map(str::to_owned);
    let request_id = given_id.map_or_else(new_request_id, str::to_owned);

    let span = tracing::error_span!(
        "request",
        otel.name = %format_args!("{method} {route}"),
        otel.kind = "server",
        request_id,
        correlation_id,
        trace_id = field::Empty,
        method,
        route,
    );

    let header = headers.get(&TRACE).and_then(|value| value.to_str().ok());
    let given = header.and_then(TraceContext::parse);
    trace::attach(&span, given);

    // Without an exporter and a header the request still gets a trace id for the log.
    let generated =
        || TraceContext::new(rand::rng().random(), rand::rng().random(), trace::RECORDED);
    let trace = trace::context_of(&span).or(given).or_else(generated);
    if let Some(trace) = trace {
        span.record(
            "trace_id",
            field::display(format_args!("{:032x}", trace.trace_id())),
        );
    }

    (
        RequestIds {
            request_id,
            correlation_id,
            trace,
        },
        span,
    )
}

/// The id of a request that names none.
pub(crate) fn new_request_id() -> String {
    format!("{:032x}", rand::rng().random::<u128>())
}

/// A header that is valid as a correlation id. Any other value is ignored.
fn valid_name<'a>(headers: &'a HeaderMap, header: &HeaderName) -> Option<&'a str> {
    let text = headers.get(header)?.to_str().ok()?;
    let is_valid = bounds::check_name("correlationId", text).is_ok();
    is_valid.then_some(text)
}

/// Adds the ids to the response, so that its log lines can be found.
fn add_ids(response: &mut Response, ids: &RequestIds) {
    let problem = response.extensions_mut().remove::<Problem>();
    if let (Some(correlation_id), Some(problem)) = (&ids.correlation_id, problem) {
        *response.body_mut() = problem::body(Problem {
            correlation_id: Some(correlation_id.clone()),
            ..problem
        });
        // The new body has another length.
        response
            .headers_mut()
            .remove(axum::http::header::CONTENT_LENGTH);
    }

    let headers = response.headers_mut();
    let pairs = [
        (REQUEST_ID, Some(&ids.request_id)),
        (CORRELATION_ID, ids.correlation_id.as_ref()),
    ];
    for (header, value) in pairs {
        if let Some(Ok(value)) = value.map(|text| HeaderValue::from_str(text)) {
            headers.insert(header, value);
        }
    }
}

/// The method as a metric label. Invented methods share one label.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" | "HEAD" => "GET",
        "POST" => "POST",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

/// Buckets in seconds, up to ten, where clients give up.
fn request_seconds() -> Histogram {
    Histogram::new([
        0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
    ])
}

/// Route, method and status.
type Labels = (&'static str, &'static str, u16);

/// Metrics of requests. The handles are cached: their number is bounded by routes, methods and
/// statuses.
#[derive(Debug)]
pub(crate) struct HttpMetrics {
    routes: HashSet<&'static str>,
    requests: MetricFamily<Counter, 3>,
    seconds: MetricFamily<Histogram, 2>,
    streams: Gauge,
    handles: RwLock<HashMap<Labels, (Counter, Histogram)>>,
}

impl HttpMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let (requests, seconds, streams) = metrics.add(|registry| {
            let requests = registry.counters(
                "http_requests",
                ["route", "method", "status"],
                "Requests that were answered",
            );
            let help = "How long the answer took; of a live stream, its start";
            let seconds = registry.histograms(
                "http_request_seconds",
                ["route", "method"],
                help,
                request_seconds,
            );

            (
                requests,
                seconds,
                registry.single(
                    "http_live_streams",
                    Kind::Gauge,
                    "Live streams that are open",
                ),
            )
        });

        let routes = routes().iter().map(|route| route.path).collect();
        Self {
            routes,
            requests,
            seconds,
            streams,
            handles: RwLock::default(),
        }
    }

    fn route(&self, path: &str) -> &'static str {
        self.routes.get(path).copied().unwrap_or(NO_ROUTE)
    }

    fn count(&self, labels: Labels, since: Instant) {
        // The read lock is released before the write lock is taken. Two first requests may both
        // insert: their handles are of the same metric.
        let cached = self.handles.read().get(&labels).cloned();
        let (requests, seconds) = match cached {
            Some(handles) => handles,
            None => {
                let (route, method, status) = labels;
                let requests = self.requests.get([route, method, &status.to_string()]);
                let handles = (requests, self.seconds.get([route, method]));
                self.handles.write().insert(labels, handles.clone());
                handles
            }
        };

        requests.inc();
        seconds.observe(since.elapsed().as_secs_f64());
    }

    /// The number of open live streams.
    pub(crate) fn open_streams(&self) -> u32 {
        u32::try_from(self.streams.get()).unwrap_or(0)
    }

    /// Counts a live stream as open until the value is dropped.
    pub(crate) fn open_stream(&self) -> OpenStream {
        self.streams.inc();
        OpenStream(self.streams.clone())
    }
}

/// See [`HttpMetrics::open_stream`].
#[derive(Debug)]
pub(crate) struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}
