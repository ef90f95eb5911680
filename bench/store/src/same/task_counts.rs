//! The rows that the store adds to its counts with each batch, as constants instead of counts.

use super::{QUEUE, TASK_TYPE};

/// One row of `count_deltas`. Queue and type are always the same here.
pub(super) struct Line {
    pub(super) span_start: i64,
    pub(super) measure: &'static str,
    pub(super) label: &'static str,
    pub(super) bucket: i32,
    pub(super) n: i64,
}

/// The start of an hour.
const SPAN: i64 = 3_600_000_000 * 480_000;

/// The rows of a submit.
pub(super) fn submitted(n: usize) -> [Line; 1] {
    [status("QUEUED", n as i64)]
}

/// The rows of a claim.
pub(super) fn claimed(n: usize) -> [Line; 2] {
    [status("QUEUED", -(n as i64)), status("RUNNING", n as i64)]
}

/// The rows of a finish. The tasks of a batch were submitted and claimed together, so all their
/// waits, and all their runs, usually fall into one bucket of the histogram.
pub(super) fn completed(n: usize) -> [Line; 5] {
    let ended = |measure, bucket| Line {
        span_start: SPAN,
        measure,
        label: "COMPLETED",
        bucket,
        n: n as i64,
    };

    [
        status("RUNNING", -(n as i64)),
        status("COMPLETED", n as i64),
        ended("ended", 1),
        ended("wait", 80),
        ended("run", 48),
    ]
}

const fn status(label: &'static str, n: i64) -> Line {
    Line {
        span_start: 0,
        measure: "status",
        label,
        bucket: 0,
        n,
    }
}

/// The rows in the form of `insert_count_deltas`.
pub(super) fn document(lines: &[Line]) -> String {
    let line = |Line {
                    span_start,
                    measure,
                    label,
                    bucket,
                    n,
                }: &Line| {
        format!(
            r#"{{"span_start":{span_start},"queue":"{QUEUE}","task_type":"{TASK_TYPE}","measure":"{measure}","label":"{label}","bucket":{bucket},"n":{n}}}"#
        )
    };
    [
        "[",
        &lines.iter().map(line).collect::<Vec<_>>().join(","),
        "]",
    ]
    .concat()
}
