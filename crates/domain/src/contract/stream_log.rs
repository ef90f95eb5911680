//! The stream log: the output of a running task in chunks, for readers that connect and reconnect.
//!
//! Entries are numbered from 1 without gaps. A reader names its last number and gets what follows,
//! so a reconnect neither loses nor repeats entries. Appends are fenced by the attempt: those of an
//! older attempt are refused. An attempt that starts over writes a rewind before its first chunk.
//!
//! A log may lose a stream, for example with its process. Readers may still have its numbers, so a
//! later attempt does not reuse them: it starts with a rewind at [`first_number`], above them all.

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
    /// Everything after the entry of this number is void (0: everything). A new attempt writes it
    /// again.
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
    /// The oldest number that is still kept. A reader who is behind it has missed something, unless
    /// what is kept starts with a rewind to what the reader has.
    pub first_available: u64,
    /// The newest number, 0 while nothing was written. A reader with a higher one has it from a log
    /// that was lost.
    pub last: u64,
}

/// The first number of a later attempt in a log that does not know the stream: above all numbers of
/// earlier attempts, and exact in JavaScript for two million attempts.
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
    /// Makes `attempt` the writer. It continues after entry number `keep`; a rewind voids what was
    /// written after it.
    async fn begin(&self, task: TaskId, attempt: u32, keep: u64) -> Result<(), StreamError>;
    /// Appends a chunk and returns its number.
    async fn append(&self, task: TaskId, attempt: u32, chunk: &str) -> Result<u64, StreamError>;
    /// Ends the stream. A repetition changes nothing. A stream that the log does not know or has
    /// lost stays unknown: an end alone would look like empty output.
    async fn end(&self, task: TaskId, attempt: u32) -> Result<(), StreamError>;
    /// Entries after number `after`, at most `limit`. An unknown stream is empty.
    async fn read(&self, task: TaskId, after: u64, limit: usize) -> Result<Entries, StreamError>;
    /// Waits until there is something after number `after`, or until `wait_ms` have passed.
    async fn wait(&self, task: TaskId, after: u64, wait_ms: u64) -> Result<(), StreamError>;
    /// Removes the stream.
    async fn remove(&self, task: TaskId) -> Result<(), StreamError>;
}
