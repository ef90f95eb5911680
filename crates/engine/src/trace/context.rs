//! The value of a `traceparent` header, as W3C Trace Context defines it.

use std::fmt;

use longhaul_domain::TaskRecord;

/// The flag of a trace that is to be recorded.
pub const RECORDED: u8 = 1;

/// Which trace and span something belongs to.
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
            return None;
        }

        Some(Self {
            trace_id,
            span_id,
            flags,
        })
    }

    /// Parses a header. A malformed one counts as absent.
    pub fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split('-').collect();
        let [version, trace_id, span_id, flags, rest @ ..] = fields.as_slice() else {
            return None;
        };

        // A later version may have more fields; version 0 has none, and ff is not a version.
        let is_version = is_hex(version, 2) && *version != "ff";
        let is_complete = rest.is_empty() || *version != "00";
        if !is_version || !is_complete {
            return None;
        }
        if !is_hex(trace_id, 32) || !is_hex(span_id, 16) || !is_hex(flags, 2) {
            return None;
        }

        let trace_id = u128::from_str_radix(trace_id, 16).ok()?;
        let span_id = u64::from_str_radix(span_id, 16).ok()?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Self::new(trace_id, span_id, flags)
    }

    /// The context of a task: the one that it was submitted with, or one made of its id.
    pub fn of(task: &TaskRecord) -> Option<Self> {
        let submitted = task.trace_context.as_deref().and_then(Self::parse);
        let id = task.id.0.as_u128();
        // The low half of an id is random, so it serves as a span id.
        submitted.or_else(|| Self::new(id, id as u64, RECORDED))
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

fn is_hex(field: &str, length: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    field.len() == length && field.bytes().all(is_digit)
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

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_written_as_it_was_parsed() {
        assert_eq!(TraceContext::parse(HEADER).unwrap().to_string(), HEADER);
        let later =
            TraceContext::parse("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more");
        assert_eq!(later.unwrap().to_string(), HEADER);
    }

    #[test]
    fn a_malformed_header_counts_as_absent() {
        let long = format!("{HEADER}-more");
        let upper = HEADER.to_uppercase();
        let no_trace = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let no_span = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";

        for text in [
            "",
            "00",
            &long,
            &upper,
            no_trace,
            no_span,
            &HEADER.replacen("00", "ff", 1),
            &HEADER[..54],
            "é",
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
    }
}
