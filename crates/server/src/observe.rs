//! What stands around every request: the ids that its log lines carry, and what is counted of it.
//!
//! A caller may name the request (`X-Request-Id`), what it belongs to (`X-Correlation-Id`) and its trace
//! (`traceparent`). What is missing or not valid is made up or left out; none of it is a reason to refuse anybody.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
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
    metrics::book::{Kind, Many},
    trace::{self, TraceContext},
};
use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};
use rand::RngExt as _;
use tracing::{Instrument as _, Span, field};

use crate::{api::Api, problem, router::routes};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
const TRACE: HeaderName = HeaderName::from_static("traceparent");
/// What a path is called that is in no table.
const NO_ROUTE: &str = "none";

/// What a request is known by.
#[derive(Debug, Clone)]
pub(crate) struct RequestIds {
    request_id: String,
    /// Given by the caller, in either header. Tasks that say nothing else belong to it.
    pub(crate) correlation_id: Option<String>,
    /// Where tasks of this request go on in its trace.
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
    let (since, method) = (Instant::now(), method(request.method()));
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or(NO_ROUTE, |path| api.http.route(path.as_str()));
    let (ids, span) = begin(request.headers(), method, route);
    request.extensions_mut().insert(ids.clone());
    let mut response = next.run(request).instrument(span.clone()).await;
    let status = response.status().as_u16();
    span.in_scope(|| tracing::debug!(status, "answered"));
    api.http.answered((route, method, status), since);
    sign(&mut response, &ids);
    response
}

/// The ids of a request, and the span that shows them.
fn begin(headers: &HeaderMap, method: &'static str, route: &'static str) -> (RequestIds, Span) {
    let given_id = name(headers, &REQUEST_ID);
    let correlation_id = name(headers, &CORRELATION_ID)
        .or(given_id)
        .map(str::to_owned);
    let request_id = given_id.map_or_else(
        || format!("{:032x}", rand::rng().random::<u128>()),
        str::to_owned,
    );
    let span = tracing::error_span!(
        "request",
        otel.name = %format_args!("{method} {route}"),
        otel.kind = "server",
        requestId = request_id,
        correlationId = correlation_id,
        traceId = field::Empty,
        method,
        route,
    );
    let given = headers
        .get(&TRACE)
        .and_then(|value| value.to_str().ok())
        .and_then(TraceContext::parse);
    trace::attach(&span, given);
    let made = || TraceContext::new(rand::rng().random(), rand::rng().random(), trace::RECORDED);
    let trace = trace::context_of(&span).or(given).or_else(made);
    if let Some(trace) = trace {
        span.record(
            "traceId",
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

/// A header that can be kept with a task; any other is as if it had not been sent.
fn name<'a>(headers: &'a HeaderMap, header: &HeaderName) -> Option<&'a str> {
    let text = headers.get(header)?.to_str().ok()?;
    bounds::check_name("correlationId", text)
        .is_ok()
        .then_some(text)
}

/// The answer says what it was known by, so that a person can find its lines.
fn sign(response: &mut Response, ids: &RequestIds) {
    if let (Some(correlation_id), Some(problem)) = (
        &ids.correlation_id,
        response.extensions_mut().remove::<Problem>(),
    ) {
        *response.body_mut() = problem::body(Problem {
            correlation_id: Some(correlation_id.clone()),
            ..problem
        });
        response
            .headers_mut()
            .remove(axum::http::header::CONTENT_LENGTH);
    }
    let headers = response.headers_mut();
    let signs = [
        (REQUEST_ID, Some(&ids.request_id)),
        (CORRELATION_ID, ids.correlation_id.as_ref()),
    ];
    for (header, value) in signs {
        if let Some(Ok(value)) = value.map(|text| HeaderValue::from_str(text)) {
            headers.insert(header, value);
        }
    }
}

/// Methods that routes have; what somebody makes up is no label.
fn method(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" | "HEAD" => "GET",
        "POST" => "POST",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

/// Seconds: from a tenth of a millisecond to ten seconds, where clients give up.
fn request_seconds() -> Histogram {
    Histogram::new([
        0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
    ])
}

/// Route, method and status.
type Answered = (&'static str, &'static str, u16);

/// What is counted of requests. Handles are kept: there are as many as routes have statuses.
#[derive(Debug)]
pub(crate) struct HttpMetrics {
    routes: HashSet<&'static str>,
    requests: Many<Counter, 3>,
    seconds: Many<Histogram, 2>,
    streams: Gauge,
    handles: RwLock<HashMap<Answered, (Counter, Histogram)>>,
}

impl HttpMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let (requests, seconds, streams) = metrics.add(|book| {
            let requests = book.counters(
                "http_requests",
                ["route", "method", "status"],
                "Requests that were answered",
            );
            let help = "How long the answer took; of a live stream, its start";
            let seconds = book.histograms(
                "http_request_seconds",
                ["route", "method"],
                help,
                request_seconds,
            );
            (
                requests,
                seconds,
                book.single(
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

    fn answered(&self, answered: Answered, since: Instant) {
        let known = self
            .handles
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&answered)
            .cloned();
        let (requests, seconds) = known.unwrap_or_else(|| {
            let (route, method, status) = answered;
            let requests = self.requests.get([route, method, &status.to_string()]);
            let made = (requests, self.seconds.get([route, method]));
            self.handles
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(answered, made.clone());
            made
        });
        requests.inc();
        seconds.observe(since.elapsed().as_secs_f64());
    }

    /// How many live streams are open.
    pub(crate) fn open_streams(&self) -> u32 {
        u32::try_from(self.streams.get()).unwrap_or(0)
    }

    /// A live stream that is counted until this is dropped.
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
