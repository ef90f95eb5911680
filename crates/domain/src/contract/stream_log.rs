//! The stream log: what a task writes while it runs, chunk by chunk, for readers who come and go (R40).
//!
//! Entries are numbered from 1 without gaps. A reader names the last number that it has and gets what follows, so a
//! reconnect neither loses nor repeats. Appends are fenced by the attempt: what an older attempt still writes is
//! refused. An attempt that starts over puts a rewind before its first chunk.
//!
//! A log may lose a stream, with its process for one. Readers may hold numbers of it that the log no longer knows, so a
//! later attempt does not give them out again: it starts with a rewind at [`first_number`], above all of them.

use async_trait::async_trait;

use crate::ids::TaskId;

/// One numbered entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub number: u64,
    pub content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Chunk(String),
    /// Everything after the entry of this number is to be forgotten (0: everything); a new attempt writes it anew.
    Rewind {
        to: u64,
    },
    /// Nothing follows.
    End,
}

/// What a reader gets at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries {
    pub entries: Vec<Entry>,
    /// The oldest number that is still kept. A reader who is behind it has missed something, unless what is kept starts
    /// with a rewind to what the reader has.
    pub first_kept: u64,
    /// The newest number, 0 while nothing was written. Whoever has a higher one has it from a log that is lost.
    pub last: u64,
}

/// The number that a later attempt starts with in a log that does not know the stream: higher than all that earlier
/// attempts can have given out, and exact in JavaScript for two million attempts.
pub const fn first_number(attempt: u32) -> u64 {
    if attempt <= 1 {
        1
    } else {
        ((attempt as u64) << 32) + 1
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    #[error("a newer attempt writes this stream")]
    Stale,
    #[error("the chunk has {0} bytes; allowed: up to {max}", max = crate::bounds::CHUNK_BYTES)]
    TooLarge(usize),
    #[error("the stream log is unavailable: {0}")]
    Unavailable(String),
}

/// Ordered output of tasks.
#[async_trait]
pub trait StreamLog: Send + Sync + std::fmt::Debug {
    /// Makes `attempt` the one that writes. With `keep` the reader goes on after entry number `keep`; what was
    /// written after it is taken back by a rewind.
    async fn begin(&self, task: TaskId, attempt: u32, keep: u64) -> Result<(), StreamError>;
    /// Appends a chunk and answers with its number.
    async fn append(&self, task: TaskId, attempt: u32, chunk: &str) -> Result<u64, StreamError>;
    /// Says that nothing follows. Ending twice is ending once. A stream that the log does not know, or has lost, stays
    /// unknown: an end alone would tell its readers that there was nothing else.
    async fn end(&self, task: TaskId, attempt: u32) -> Result<(), StreamError>;
    /// Entries after number `after`, at most `limit`. A stream that nobody has written is empty.
    async fn read(&self, task: TaskId, after: u64, limit: usize) -> Result<Entries, StreamError>;
    /// Waits until there is something after number `after`, or until `wait_ms` have passed.
    async fn wait(&self, task: TaskId, after: u64, wait_ms: u64) -> Result<(), StreamError>;
    /// Forgets the stream.
    async fn remove(&self, task: TaskId) -> Result<(), StreamError>;
}
