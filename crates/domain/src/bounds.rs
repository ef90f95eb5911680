//! Every size that Longhaul accepts, with its unit and its reason, and the checks that use them.
//!
//! The bounds hold for all three databases alike, so that a task accepted by one is accepted by
//! all.

use crate::error::Invalid;

/// Parameters, result, progress, checkpoint and memo, in bytes of JSON text. Larger things are
/// artifacts.
pub const JSON_BYTES: usize = 256 * 1024;
/// Nesting of JSON: far below the 128 at which parsers stop, far above what people write.
pub const JSON_DEPTH: usize = 64;
/// Object keys in one document, so that readers with quadratic maps stay fast.
pub const JSON_KEYS: usize = 10_000;
/// One string inside a document, in bytes.
pub const JSON_STRING_BYTES: usize = 64 * 1024;

/// Names of owners, keys and correlations, in bytes: well within a MySQL index key.
pub const NAME_BYTES: usize = 200;
/// Names of task types and queues, in bytes: they are part of routing keys and metric labels.
pub const LABEL_BYTES: usize = 100;
/// Error messages are cut, not refused, at this many bytes: a failure must always be storable.
pub const ERROR_BYTES: usize = 8 * 1024;
/// One log line, in bytes. Longer ones are cut, not refused: a task must not fail because of its
/// logs.
pub const LOG_BYTES: usize = 8 * 1024;
/// Log lines in one call: with the longest lines, twice what one statement carries.
pub const LOG_BATCH: usize = 1_000;
/// Log lines stored with one task: what a person reads. A program that writes more has its own log.
pub const LOG_LINES: usize = 1_000;
/// Lines above [`LOG_LINES`] at which the oldest are removed, so that not every new line removes
/// one.
pub const LOG_SLACK: usize = 100;
/// A result's URL, in bytes.
pub const URL_BYTES: usize = 2_000;

/// One chunk of a task's output stream, in bytes. Longer text is several chunks.
pub const CHUNK_BYTES: usize = 64 * 1024;
/// A file of a task, in bytes: it is in memory on its way to the artifact store.
pub const ARTIFACT_BYTES: usize = 256 * 1024 * 1024;

/// Files of one task: what a person looks through.
pub const ARTIFACTS: usize = 1_000;

/// Priorities run from 1, the default, to 9, which goes first.
pub const PRIORITY: std::ops::RangeInclusive<u8> = 1..=9;
/// The position of promoted tasks, which have waited too long: before every priority. No task is
/// submitted with it.
pub const FORWARD: u8 = 10;
/// Attempts of one task. More than this is a mistake, not a policy.
pub const MAX_ATTEMPTS: std::ops::RangeInclusive<u32> = 1..=1_000;
/// The default number of attempts.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 5;
/// Node deaths after which a task is quarantined as a dead letter.
pub const DEFAULT_MAX_CRASHES: u32 = 5;
/// Delays, timeouts and leases, in milliseconds: ten years.
pub const DURATION_MS: u64 = 10 * 366 * 24 * 3_600 * 1_000;

/// Tasks in one submit call.
pub const SUBMIT_BATCH: usize = 10_000;
/// Tasks in one claim, heartbeat or finish.
pub const CLAIM_BATCH: usize = 1_000;
/// Leases that a node names when it asks for its strays: more than any process has slots.
pub const HELD: usize = 100_000;
/// Rows of one list page.
pub const PAGE_SIZE: usize = 1_000;
/// Rows that a store counts for one query. More rows count as this many. A tenth of a second on the
/// slowest store.
pub const COUNT: usize = 100_000;
/// Rows that one maintenance pass touches in one transaction.
pub const MAINTENANCE_BATCH: usize = 1_000;
/// Waiting tasks of one queue that are listed at once: about a second's work of the largest fleet.
pub const DUE_BATCH: usize = 5_000;
/// How often a task is looked up again whose hint was published before its commit, a millisecond or
/// more apart. If the commit takes longer than this many milliseconds, the hint is published again.
pub const AHEAD_LOOKUPS: u8 = 3;
/// Waiting tasks of one queue, type and priority that one pass of priority aging reads: ten times
/// those that it promotes.
pub const AGING_WINDOW: usize = 100;
/// Children that one parent may have.
pub const CHILDREN: u32 = 1_000_000;

/// As much of a text as fits into `max_bytes`, cut between characters, without NUL characters,
/// which databases cannot store.
pub(crate) fn cut(text: impl Iterator<Item = char>, max_bytes: usize) -> String {
    let mut cut = String::new();
    for c in text.filter(|c| *c != '\0') {
        if cut.len() + c.len_utf8() > max_bytes {
            break;
        }
        cut.push(c);
    }

    cut
}

/// Refuses a free-text name that is empty, too long, or contains a control character.
pub fn check_name(field: &'static str, value: &str) -> Result<(), Invalid> {
    check_text(field, value, NAME_BYTES)
}

/// Refuses text that is empty, longer than `max_bytes`, or contains control characters.
pub fn check_text(field: &'static str, value: &str, max_bytes: usize) -> Result<(), Invalid> {
    if value.is_empty() {
        return Err(Invalid::new(
            field,
            "is empty",
            format!("1 to {max_bytes} bytes of text"),
        ));
    }

    if value.len() > max_bytes {
        return Err(Invalid::new(
            field,
            format!("has {} bytes", value.len()),
            format!("1 to {max_bytes} bytes of text"),
        ));
    }

    if value.chars().any(char::is_control) {
        return Err(Invalid::new(
            field,
            "holds a control character",
            "text without control characters",
        ));
    }

    Ok(())
}

/// Refuses a type or queue name outside the alphabet that routing keys, labels and URLs share.
pub fn check_label(field: &'static str, value: &str) -> Result<(), Invalid> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/');
    if value.is_empty() || value.len() > LABEL_BYTES || !value.chars().all(allowed) {
        return Err(Invalid::new(
            field,
            format!("is {:?}", value.chars().take(60).collect::<String>()),
            format!("1 to {LABEL_BYTES} of the characters A-Z a-z 0-9 _ - . : /"),
        ));
    }

    Ok(())
}

/// Refuses a priority outside 1 to 9.
pub fn check_priority(value: u8) -> Result<(), Invalid> {
    if PRIORITY.contains(&value) {
        return Ok(());
    }

    Err(Invalid::new(
        "priority",
        format!("is {value}"),
        "1 (default) to 9 (first)",
    ))
}

/// Refuses a number of attempts outside 1 to 1,000.
pub fn check_max_attempts(value: u32) -> Result<(), Invalid> {
    if MAX_ATTEMPTS.contains(&value) {
        return Ok(());
    }

    Err(Invalid::new(
        "maxAttempts",
        format!("is {value}"),
        "1 to 1000",
    ))
}

/// Refuses a duration of more than ten years.
pub fn check_duration_ms(field: &'static str, value: u64) -> Result<(), Invalid> {
    if value <= DURATION_MS {
        return Ok(());
    }

    Err(Invalid::new(
        field,
        format!("is {value} ms"),
        format!("0 to {DURATION_MS} ms (ten years)"),
    ))
}

/// Refuses a batch larger than its bound.
pub fn check_batch(field: &'static str, len: usize, max: usize) -> Result<(), Invalid> {
    if len <= max {
        return Ok(());
    }

    Err(Invalid::new(
        field,
        format!("has {len} items"),
        format!("at most {max}"),
    ))
}
