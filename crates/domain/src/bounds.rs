//! Every size that Longhaul accepts, with its unit and its reason, and the checks that use them.
//!
//! The bounds hold for all three databases alike, so that a task accepted by one is accepted by all.

use crate::error::Invalid;

/// Parameters, result, progress, checkpoint and memo, in bytes of JSON text. Larger things are artifacts.
pub const JSON_BYTES: usize = 256 * 1024;
/// Nesting of JSON. Far below the 128 where parsers stop, far above what people write.
pub const JSON_DEPTH: usize = 64;
/// Object keys in one document, so that no reader of it meets a quadratic map.
pub const JSON_KEYS: usize = 10_000;
/// One string inside a document, in bytes.
pub const JSON_STRING_BYTES: usize = 64 * 1024;

/// Names of owners, keys and correlations, in bytes: what a MySQL index key takes with room to spare.
pub const NAME_BYTES: usize = 200;
/// Names of task types and queues, in bytes; they travel in routing keys and metric labels.
pub const LABEL_BYTES: usize = 100;
/// Error messages are cut, not refused, at this many bytes: a failure must always be storable.
pub const ERROR_BYTES: usize = 8 * 1024;
/// One log line, in bytes. Longer ones are cut, not refused: a task must not fail for what it says about itself.
pub const LOG_BYTES: usize = 8 * 1024;
/// Log lines in one call; with the longest lines that is twice what one statement carries.
pub const LOG_BATCH: usize = 1_000;
/// Log lines kept with one task: what a person reads. A program that writes more has a log of its own.
pub const LOG_LINES: usize = 1_000;
/// Lines above [`LOG_LINES`] at which the oldest go, so that not every line that comes removes one.
pub const LOG_SLACK: usize = 100;
/// A result's URL, in bytes.
pub const URL_BYTES: usize = 2_000;

/// One chunk of a task's output stream, in bytes. Longer text is several chunks.
pub const CHUNK_BYTES: usize = 64 * 1024;
/// A file that a task makes, in bytes, where it is held in memory on its way.
pub const ARTIFACT_BYTES: usize = 256 * 1024 * 1024;

/// Files of one task: what a person looks through.
pub const ARTIFACTS: usize = 1_000;

/// Priorities run from 1, the default, to 9, which goes first.
pub const PRIORITY: std::ops::RangeInclusive<u8> = 1..=9;
/// Where tasks stand that have waited too long: before every priority. No task is submitted there.
pub const FORWARD: u8 = 10;
/// Attempts that a task may be given. Above this a loop is a mistake, not a policy.
pub const MAX_ATTEMPTS: std::ops::RangeInclusive<u32> = 1..=1_000;
/// Attempts a task has when nobody says otherwise.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 5;
/// Node deaths after which a task is quarantined as a dead letter.
pub const DEFAULT_MAX_CRASHES: u32 = 5;
/// Delays, timeouts and leases, in milliseconds: ten years.
pub const DURATION_MS: u64 = 10 * 366 * 24 * 3_600 * 1_000;

/// Tasks in one submit call.
pub const SUBMIT_BATCH: usize = 10_000;
/// Tasks in one claim, heartbeat or finish.
pub const CLAIM_BATCH: usize = 1_000;
/// Leases that a node may have in hand when it asks for its strays: more than any process has slots.
pub const HELD: usize = 100_000;
/// Rows of one list page.
pub const PAGE_SIZE: usize = 1_000;
/// Rows that a store counts for one question: more is told as this many. A tenth of a second on the slowest store.
pub const COUNT: usize = 100_000;
/// Rows that one maintenance pass touches in one transaction.
pub const MAINTENANCE_BATCH: usize = 1_000;
/// Bells that one look at a queue answers with: about a second's work of the largest fleet.
pub const DUE_BATCH: usize = 5_000;
/// How often a task is looked for again that was rung for ahead of its commit, a millisecond or more apart. A commit that
/// takes longer than so many milliseconds is rung for again.
pub const AHEAD_LOOKS: u8 = 3;
/// Waiting tasks of one queue, type and priority that one pass of the aging looks at: ten times those that it moves.
pub const AGING_LOOK: usize = 100;
/// Children that one parent may have.
pub const CHILDREN: u32 = 1_000_000;

/// As much of a text as fits into `max_bytes`, cut between characters, without what databases cannot keep.
pub(crate) fn cut(text: impl Iterator<Item = char>, max_bytes: usize) -> String {
    let mut kept = String::new();
    for c in text.filter(|c| *c != '\0') {
        if kept.len() + c.len_utf8() > max_bytes {
            break;
        }
        kept.push(c);
    }
    kept
}

/// Refuses a free-text name that is empty, too long, or holds a character that no store keeps exactly.
pub fn check_name(field: &'static str, value: &str) -> Result<(), Invalid> {
    check_text(field, value, NAME_BYTES)
}

/// Refuses text that is empty, longer than `max_bytes`, or holds control characters.
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

/// Refuses a number of attempts that is zero or absurd.
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
