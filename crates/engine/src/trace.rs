//! Which trace a task belongs to, as W3C Trace Context writes it, and the seam to whoever records traces.
//!
//! Nothing here records anything. A program that exports traces installs a [`Tracer`] beside its subscriber; without
//! one, contexts are passed on as they came. A task that nobody gave a context has its own id for a trace id, so that
//! its log lines and those of its children can always be found together.

use std::fmt;
use std::sync::{Arc, OnceLock};

use longhaul_domain::Task;
use tracing::Span;

/// The flag of a trace that is to be recorded by whoever records traces.
pub const RECORDED: u8 = 1;

/// The value of a `traceparent` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: u128,
    span_id: u64,
    flags: u8,
}

impl TraceContext {
    /// `None` for an id of zero, which the standard forbids.
    pub const fn new(trace_id: u128, span_id: u64, flags: u8) -> Option<Self> {
        if trace_id == 0 || span_id == 0 {
            None
        } else {
            Some(Self {
                trace_id,
                span_id,
                flags,
            })
        }
    }

    /// Reads what others sent. What is not as the standard says is as if it had not been sent.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('-').collect();
        let [version, trace_id, span_id, flags, rest @ ..] = parts.as_slice() else {
            return None;
        };
        let is_hex = |part: &str, length: usize| {
            part.len() == length
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        // A later version may have more parts; version 0 has none, and ff is no version.
        let is_known =
            is_hex(version, 2) && *version != "ff" && (rest.is_empty() || *version != "00");
        if !is_known || !is_hex(trace_id, 32) || !is_hex(span_id, 16) || !is_hex(flags, 2) {
            return None;
        }
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Self::new(
            u128::from_str_radix(trace_id, 16).ok()?,
            u64::from_str_radix(span_id, 16).ok()?,
            flags,
        )
    }

    /// Where a task stands in its trace.
    pub fn of(task: &Task) -> Option<Self> {
        let given = task.trace_context.as_deref().and_then(Self::parse);
        let id = task.id.0.as_u128();
        // The low half of an id is random.
        given.or_else(|| Self::new(id, id as u64, RECORDED))
    }

    pub const fn trace_id(&self) -> u128 {
        self.trace_id
    }

    pub const fn span_id(&self) -> u64 {
        self.span_id
    }

    pub const fn flags(&self) -> u8 {
        self.flags
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "00-{:032x}-{:016x}-{:02x}",
            self.trace_id, self.span_id, self.flags
        )
    }
}

/// Whoever records traces. It belongs to the subscriber of the process and is as global as that.
pub trait Tracer: Send + Sync + fmt::Debug {
    /// Has `span` go on with what `from` began. Asked for before the span is entered.
    fn attach(&self, span: &Span, from: &TraceContext);
    /// What others can go on with from `span`, if it is recorded.
    fn context_of(&self, span: &Span) -> Option<TraceContext>;
}

static TRACER: OnceLock<Arc<dyn Tracer>> = OnceLock::new();

/// The first one counts.
pub fn install(tracer: Arc<dyn Tracer>) {
    if TRACER.set(tracer).is_err() {
        tracing::warn!("a second tracer was installed and is not used");
    }
}

/// Has `span` go on with what `from` began, if traces are recorded.
pub fn attach(span: &Span, from: Option<TraceContext>) {
    if let (Some(tracer), Some(from)) = (TRACER.get(), from) {
        tracer.attach(span, &from);
    }
}

/// What others can go on with from `span`, if traces are recorded.
pub fn context_of(span: &Span) -> Option<TraceContext> {
    TRACER.get()?.context_of(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_written_as_it_was_read() {
        assert_eq!(TraceContext::parse(GIVEN).unwrap().to_string(), GIVEN);
        let later =
            TraceContext::parse("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more");
        assert_eq!(later.unwrap().to_string(), GIVEN);
    }

    #[test]
    fn what_is_not_as_the_standard_says_is_no_context() {
        let long = format!("{GIVEN}-more");
        let upper = GIVEN.to_uppercase();
        let no_trace = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let no_span = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        for text in [
            "",
            "00",
            &long,
            &upper,
            no_trace,
            no_span,
            &GIVEN.replacen("00", "ff", 1),
            &GIVEN[..54],
            "é",
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
    }
}
