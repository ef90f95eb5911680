//! The stream log of one process.
//!
//! What is too much goes from the old end: of one stream its oldest entries, of all streams first those that ended
//! longest ago, then those that were not written to for longest. A stream whose entries are gone keeps its numbers, so that
//! a reader who is behind sees that it is, and a writer goes on where it was.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{
    TaskId,
    bounds::CHUNK_BYTES,
    contract::stream_log::{Content, Entries, Entry, StreamError, StreamLog, first_number},
};
use tokio::sync::{Notify, futures::OwnedNotified};

/// What is kept. The whole is never smaller than one stream, and a stream never smaller than one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamBounds {
    pub stream_entries: usize,
    pub stream_bytes: usize,
    pub total_entries: usize,
    pub total_bytes: usize,
    /// Streams that are remembered, if only by their numbers.
    pub streams: usize,
}

impl Default for StreamBounds {
    /// A novel fits one stream; all streams together stay within what an embedded process can spare.
    fn default() -> Self {
        Self {
            stream_entries: 50_000,
            stream_bytes: 16 * 1024 * 1024,
            total_entries: 1_000_000,
            total_bytes: 256 * 1024 * 1024,
            streams: 10_000,
        }
    }
}

/// Streams in memory.
#[derive(Debug)]
pub struct MemoryStreamLog {
    bounds: StreamBounds,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    streams: HashMap<TaskId, Stream>,
    /// Who is given up first, when there is too much of all.
    order: BTreeSet<(Worth, u64, TaskId)>,
    entries: usize,
    bytes: usize,
    /// Counts changes, so that streams can be ordered by their last one.
    changes: u64,
    readers: HashMap<TaskId, Arc<Notify>>,
}

#[derive(Debug, Default)]
struct Stream {
    attempt: u32,
    last: u64,
    has_ended: bool,
    kept: VecDeque<Entry>,
    bytes: usize,
    changed: u64,
}

/// What a stream's entries are worth, least first. Streams without entries free nothing but their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    Ended,
    Running,
    Empty,
}

impl MemoryStreamLog {
    pub fn new(bounds: StreamBounds) -> Self {
        let stream_entries = bounds.stream_entries.max(1);
        let stream_bytes = bounds.stream_bytes.max(CHUNK_BYTES);
        let bounds = StreamBounds {
            stream_entries,
            stream_bytes,
            total_entries: bounds.total_entries.max(stream_entries),
            total_bytes: bounds.total_bytes.max(stream_bytes),
            streams: bounds.streams.max(1),
        };
        Self {
            bounds,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the stream as `attempt`, then gives up what has become too much and wakes the readers.
    fn write(
        &self,
        mut state: MutexGuard<'_, State>,
        task: TaskId,
        attempt: u32,
        keep: u64,
        change: impl FnOnce(&mut Stream) -> Result<(), StreamError>,
    ) -> Result<u64, StreamError> {
        let mut stream = state.take(task);
        let written = stream
            .begin(attempt, keep)
            .and_then(|()| change(&mut stream));
        stream.trim(&self.bounds);
        let last = stream.last;
        if written.is_ok() {
            state.changes += 1;
            stream.changed = state.changes;
            state.make_room(&self.bounds, &stream);
        }
        state.put(task, stream);
        if let Some(readers) = state.readers.get(&task) {
            readers.notify_waiters();
        }
        written.map(|()| last)
    }
}

#[async_trait]
impl StreamLog for MemoryStreamLog {
    async fn begin(&self, task: TaskId, attempt: u32, keep: u64) -> Result<(), StreamError> {
        self.write(self.state(), task, attempt, keep, |_| Ok(()))
            .map(drop)
    }

    async fn append(&self, task: TaskId, attempt: u32, chunk: &str) -> Result<u64, StreamError> {
        if chunk.len() > CHUNK_BYTES {
            return Err(StreamError::TooLarge(chunk.len()));
        }
        self.write(self.state(), task, attempt, 0, |stream| {
            if stream.has_ended {
                return Err(StreamError::Stale);
            }
            stream.push(Content::Chunk(chunk.to_owned()));
            Ok(())
        })
    }

    async fn end(&self, task: TaskId, attempt: u32) -> Result<(), StreamError> {
        let state = self.state();
        if !state.streams.contains_key(&task) {
            return Ok(());
        }
        let end = |stream: &mut Stream| {
            if !stream.has_ended {
                stream.push(Content::End);
                stream.has_ended = true;
            }
            Ok(())
        };
        self.write(state, task, attempt, 0, end).map(drop)
    }

    async fn read(&self, task: TaskId, after: u64, limit: usize) -> Result<Entries, StreamError> {
        let state = self.state();
        let Some(stream) = state.streams.get(&task) else {
            return Ok(Entries {
                entries: Vec::new(),
                first_kept: 1,
                last: 0,
            });
        };
        let start = stream.kept.partition_point(|entry| entry.number <= after);
        let entries = stream
            .kept
            .iter()
            .skip(start)
            .take(limit)
            .cloned()
            .collect();
        Ok(Entries {
            entries,
            first_kept: stream.first_kept(),
            last: stream.last,
        })
    }

    async fn wait(&self, task: TaskId, after: u64, wait_ms: u64) -> Result<(), StreamError> {
        let reader = Reader { log: self, task };
        let until_written = async {
            while let Some(change) = reader.next_change(after) {
                change.await;
            }
        };
        // Whether something came or the time is over shows when the caller reads.
        let _ = tokio::time::timeout(Duration::from_millis(wait_ms), until_written).await;
        Ok(())
    }

    async fn remove(&self, task: TaskId) -> Result<(), StreamError> {
        self.state().take(task);
        Ok(())
    }
}

impl Stream {
    /// Makes `attempt` the writer. The first write of an attempt that did not begin begins from the start.
    fn begin(&mut self, attempt: u32, keep: u64) -> Result<(), StreamError> {
        if attempt < self.attempt {
            return Err(StreamError::Stale);
        }
        if attempt == self.attempt {
            return Ok(());
        }
        let is_lost = self.attempt == 0 && attempt > 1;
        self.attempt = attempt;
        if is_lost {
            // Earlier attempts may have written here before the memory went, and readers may have it.
            self.last = first_number(attempt) - 1;
            self.push(Content::Rewind { to: keep });
            return Ok(());
        }
        // An end is taken back even by somebody who wants to keep it.
        let keep = if self.has_ended {
            keep.min(self.last - 1)
        } else {
            keep
        };
        self.has_ended = false;
        if keep > self.last {
            // The stream was lost and begun anew by an attempt in between: what is to be kept is of the lost one.
            self.last = self.last.max(first_number(attempt) - 1);
        }
        if keep != self.last {
            self.push(Content::Rewind { to: keep });
        }
        Ok(())
    }

    fn push(&mut self, content: Content) {
        self.last += 1;
        self.bytes += bytes_of(&content);
        self.kept.push_back(Entry {
            number: self.last,
            content,
        });
    }

    fn trim(&mut self, bounds: &StreamBounds) {
        while self.kept.len() > bounds.stream_entries || self.bytes > bounds.stream_bytes {
            let Some(oldest) = self.kept.pop_front() else {
                return;
            };
            self.bytes -= bytes_of(&oldest.content);
        }
    }

    fn first_kept(&self) -> u64 {
        self.kept
            .front()
            .map_or(self.last + 1, |oldest| oldest.number)
    }

    fn worth(&self) -> Worth {
        match (self.kept.is_empty(), self.has_ended) {
            (true, _) => Worth::Empty,
            (false, true) => Worth::Ended,
            (false, false) => Worth::Running,
        }
    }
}

impl State {
    /// Takes the stream out of all accounts; a new one if there is none.
    fn take(&mut self, task: TaskId) -> Stream {
        let Some(stream) = self.streams.remove(&task) else {
            return Stream::default();
        };
        self.order.remove(&(stream.worth(), stream.changed, task));
        self.entries -= stream.kept.len();
        self.bytes -= stream.bytes;
        stream
    }

    fn put(&mut self, task: TaskId, stream: Stream) {
        self.order.insert((stream.worth(), stream.changed, task));
        self.entries += stream.kept.len();
        self.bytes += stream.bytes;
        self.streams.insert(task, stream);
    }

    /// Gives up other streams until there is room for this one, which is not among them.
    fn make_room(&mut self, bounds: &StreamBounds, newcomer: &Stream) {
        while self.streams.len() >= bounds.streams {
            let Some(task) = [Worth::Ended, Worth::Empty, Worth::Running]
                .into_iter()
                .find_map(|it| self.oldest(it))
            else {
                return;
            };
            self.take(task);
        }
        let (entries, bytes) = (newcomer.kept.len(), newcomer.bytes);
        while self.entries + entries > bounds.total_entries
            || self.bytes + bytes > bounds.total_bytes
        {
            let Some(task) = [Worth::Ended, Worth::Running]
                .into_iter()
                .find_map(|it| self.oldest(it))
            else {
                return;
            };
            let mut stream = self.take(task);
            stream.kept.clear();
            stream.bytes = 0;
            self.put(task, stream);
        }
    }

    /// The stream of this worth that was written to least recently.
    fn oldest(&self, worth: Worth) -> Option<TaskId> {
        let first = self
            .order
            .range((worth, 0, TaskId(uuid::Uuid::nil()))..)
            .next()?;
        (first.0 == worth).then_some(first.2)
    }
}

/// Somebody who waits. The last one of a stream to go takes the stream's bell away.
#[derive(Debug)]
struct Reader<'a> {
    log: &'a MemoryStreamLog,
    task: TaskId,
}

impl Reader<'_> {
    /// The next change of the stream, or nothing when there is something after number `after` already.
    fn next_change(&self, after: u64) -> Option<OwnedNotified> {
        let mut state = self.log.state();
        if state
            .streams
            .get(&self.task)
            .is_some_and(|stream| stream.last > after)
        {
            return None;
        }
        // It hears what is written from now on, before it is awaited.
        Some(Arc::clone(state.readers.entry(self.task).or_default()).notified_owned())
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let mut state = self.log.state();
        if state
            .readers
            .get(&self.task)
            .is_some_and(|bell| Arc::strong_count(bell) == 1)
        {
            state.readers.remove(&self.task);
        }
    }
}

fn bytes_of(content: &Content) -> usize {
    match content {
        Content::Chunk(chunk) => chunk.len(),
        Content::Rewind { .. } | Content::End => 0,
    }
}
