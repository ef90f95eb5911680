//! The traces that tasks belong to, and the seam to the program's trace exporter.
//!
//! Nothing here records traces. A program that exports them installs a [`Tracer`] beside its
//! subscriber; without one, contexts are passed on unchanged. A task that was submitted without a
//! context uses its own id as the trace id, so that its log lines and those of its children can
//! always be found together.

mod context;

use std::fmt;
use std::sync::{Arc, OnceLock};

use tracing::Span;

pub use context::{RECORDED, TraceContext};

/// Connects spans to trace contexts. It belongs to the process's subscriber and is as global.
pub trait Tracer: Send + Sync + fmt::Debug {
    /// Makes `span` a child of `parent`. Called before the span is entered.
    fn attach(&self, span: &Span, parent: &TraceContext);
    /// The context that children of `span` continue, if the span is recorded.
    fn context_of(&self, span: &Span) -> Option<TraceContext>;
}

static TRACER: OnceLock<Arc<dyn Tracer>> = OnceLock::new();

/// Installs the tracer of this process. The first one counts.
pub fn install(tracer: Arc<dyn Tracer>) {
    if TRACER.set(tracer).is_err() {
        tracing::warn!("a tracer is installed already; ignoring the second one");
    }
}

/// Makes `span` a child of `parent`, if traces are recorded.
pub fn attach(span: &Span, parent: Option<TraceContext>) {
    if let (Some(tracer), Some(parent)) = (TRACER.get(), parent) {
        tracer.attach(span, &parent);
    }
}

/// The context that children of `span` continue, if traces are recorded.
pub fn context_of(span: &Span) -> Option<TraceContext> {
    TRACER.get()?.context_of(span)
}
