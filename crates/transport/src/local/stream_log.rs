//! The stream log of one process.
//!
//! When there is too much, the oldest goes first. One stream loses its oldest entries. Among all
//! streams, those that ended longest ago go first, then those that were not written to for longest.
//! A stream without entries still has its numbers, so that a reader learns that it is behind, and a
//! writer continues with the next number.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{
    TaskId,
    bounds::CHUNK_BYTES,
    contract::stream_log::{Content, Entries, Entry, StreamError, StreamLog, first_number},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, futures::OwnedNotified};

/// How much the log stores. The totals are never below the bounds of one stream, and a stream is
/// never below one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamBounds {
    pub stream_entries: usize,
    pub stream_bytes: usize,
    pub total_entries: usize,
    pub total_bytes: usize,
    /// How many streams are remembered, with or without entries.
    pub streams: usize,
}

impl Default for StreamBounds {
    /// One stream has room for a novel. All streams together stay within what an embedded process
    /// can spare.
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
    /// One lock for all streams, because their total is bounded. Never held across an await.
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    by_task: HashMap<TaskId, Stream>,
    /// All streams in the order in which they are evicted.
    eviction_order: BTreeSet<(EvictionClass, u64, TaskId)>,
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
    entries: VecDeque<Entry>,
    bytes: usize,
    last_change: u64,
}

/// Which streams lose their entries first. Streams without entries can free only their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionClass {
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
            streams: Mutex::default(),
        }
    }

    /// Changes the stream as `attempt`, evicts what has become too much and wakes the readers.
    fn write(
        &self,
        mut streams: MutexGuard<'_, Streams>,
        task: TaskId,
        attempt: u32,
        keep: u64,
        change: impl FnOnce(&mut Stream) -> Result<(), StreamError>,
    ) -> Result<u64, StreamError> {
        // The stream is taken out while it changes, so that making room cannot evict it.
        let mut stream = streams.take(task);
        let written = stream
            .begin(attempt, keep)
            .and_then(|()| change(&mut stream));
        stream.trim(&self.bounds);
        let last = stream.last;

        if written.is_ok() {
            streams.changes += 1;
            stream.last_change = streams.changes;
            streams.make_room_for(&stream, &self.bounds);
        }

        streams.put(task, stream);
        if let Some(readers) = streams.readers.get(&task) {
            readers.notify_waiters();
        }

        written.map(|()| last)
    }
}

#[async_trait]
impl StreamLog for MemoryStreamLog {
    async fn begin(&self, task: TaskId, attempt: u32, keep: u64) -> Result<(), StreamError> {
        self.write(self.streams.lock(), task, attempt, keep, |_| Ok(()))?;
        Ok(())
    }

    async fn append(&self, task: TaskId, attempt: u32, chunk: &str) -> Result<u64, StreamError> {
        if chunk.len() > CHUNK_BYTES {
            return Err(StreamError::TooLarge(chunk.len()));
        }

        self.write(self.streams.lock(), task, attempt, 0, |stream| {
            if stream.has_ended {
                return Err(StreamError::Stale);
            }
            stream.push(Content::Chunk(chunk.to_owned()));
            Ok(())
        })
    }

    async fn end(&self, task: TaskId, attempt: u32) -> Result<(), StreamError> {
        // The lock covers both the check and the write.
        let streams = self.streams.lock();
        if !streams.by_task.contains_key(&task) {
            return Ok(());
        }

        let end = |stream: &mut Stream| {
            if !stream.has_ended {
                stream.push(Content::End);
                stream.has_ended = true;
            }
            Ok(())
        };

        self.write(streams, task, attempt, 0, end)?;
        Ok(())
    }

    async fn read(&self, task: TaskId, after: u64, limit: usize) -> Result<Entries, StreamError> {
        let streams = self.streams.lock();
        let Some(stream) = streams.by_task.get(&task) else {
            return Ok(Entries {
                entries: Vec::new(),
                first_available: 1,
                last: 0,
            });
        };

        let start = stream
            .entries
            .partition_point(|entry| entry.number <= after);
        let entries = stream.entries.iter().skip(start).take(limit);

        Ok(Entries {
            entries: entries.cloned().collect(),
            first_available: stream.first_available(),
            last: stream.last,
        })
    }

    async fn wait(&self, task: TaskId, after: u64, wait_ms: u64) -> Result<(), StreamError> {
        let reader = WaitingReader { log: self, task };
        let until_written = async {
            while let Some(change) = reader.next_change(after) {
                change.await;
            }
        };

        // The caller reads next, and sees then whether something was written in time.
        let _ = tokio::time::timeout(Duration::from_millis(wait_ms), until_written).await;
        Ok(())
    }

    async fn remove(&self, task: TaskId) -> Result<(), StreamError> {
        self.streams.lock().take(task);
        Ok(())
    }
}

impl Stream {
    /// Makes `attempt` the writer. When an attempt writes without having begun, it starts over.
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
            // Earlier attempts may have written here before the memory was lost, and readers may
            // have read it.
            self.last = first_number(attempt) - 1;
            self.push(Content::Rewind { to: keep });
            return Ok(());
        }

        // A new attempt always takes back the end, even if it keeps everything.
        let keep = if self.has_ended {
            keep.min(self.last - 1)
        } else {
            keep
        };
        self.has_ended = false;

        if keep > self.last {
            // An attempt in between began the stream anew after a loss. What is to be kept belongs
            // to the lost stream.
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
        self.entries.push_back(Entry {
            number: self.last,
            content,
        });
    }

    fn trim(&mut self, bounds: &StreamBounds) {
        while self.entries.len() > bounds.stream_entries || self.bytes > bounds.stream_bytes {
            let Some(oldest) = self.entries.pop_front() else {
                return;
            };
            self.bytes -= bytes_of(&oldest.content);
        }
    }

    fn first_available(&self) -> u64 {
        let oldest = self.entries.front();
        oldest.map_or(self.last + 1, |oldest| oldest.number)
    }

    fn eviction_class(&self) -> EvictionClass {
        match (self.entries.is_empty(), self.has_ended) {
            (true, _) => EvictionClass::Empty,
            (false, true) => EvictionClass::Ended,
            (false, false) => EvictionClass::Running,
        }
    }
}

impl Streams {
    /// Removes a stream; a new one if there is none.
    fn take(&mut self, task: TaskId) -> Stream {
        let Some(stream) = self.by_task.remove(&task) else {
            return Stream::default();
        };

        self.eviction_order
            .remove(&(stream.eviction_class(), stream.last_change, task));
        self.entries -= stream.entries.len();
        self.bytes -= stream.bytes;

        stream
    }

    fn put(&mut self, task: TaskId, stream: Stream) {
        self.eviction_order
            .insert((stream.eviction_class(), stream.last_change, task));
        self.entries += stream.entries.len();
        self.bytes += stream.bytes;
        self.by_task.insert(task, stream);
    }

    /// Evicts other streams until there is room for this one, which is not among them.
    fn make_room_for(&mut self, new: &Stream, bounds: &StreamBounds) {
        use EvictionClass::{Empty, Ended, Running};

        while self.by_task.len() >= bounds.streams {
            let Some(task) = self.oldest_of(&[Ended, Empty, Running]) else {
                return;
            };
            self.take(task);
        }

        while self.entries + new.entries.len() > bounds.total_entries
            || self.bytes + new.bytes > bounds.total_bytes
        {
            let Some(task) = self.oldest_of(&[Ended, Running]) else {
                return;
            };
            let mut stream = self.take(task);
            stream.entries.clear();
            stream.bytes = 0;
            self.put(task, stream);
        }
    }

    /// The least recently written stream of the first of these classes that has one.
    fn oldest_of(&self, classes: &[EvictionClass]) -> Option<TaskId> {
        classes.iter().find_map(|class| self.oldest(*class))
    }

    fn oldest(&self, class: EvictionClass) -> Option<TaskId> {
        let start = (class, 0, TaskId(uuid::Uuid::nil()));
        let (found, _, task) = self.eviction_order.range(start..).next()?;
        (*found == class).then_some(*task)
    }
}

/// A reader that waits for a stream. The last one removes the stream's `Notify`.
#[derive(Debug)]
struct WaitingReader<'a> {
    log: &'a MemoryStreamLog,
    task: TaskId,
}

impl WaitingReader<'_> {
    /// The next change of the stream; `None` when it already has an entry after number `after`.
    fn next_change(&self, after: u64) -> Option<OwnedNotified> {
        let mut streams = self.log.streams.lock();
        if let Some(stream) = streams.by_task.get(&self.task)
            && stream.last > after
        {
            return None;
        }

        // The future counts notifications from now on, before it is polled: no write is lost
        // between the check above and the wait.
        let readers = streams.readers.entry(self.task).or_default();
        Some(Arc::clone(readers).notified_owned())
    }
}

impl Drop for WaitingReader<'_> {
    fn drop(&mut self) {
        let mut streams = self.log.streams.lock();
        if let Some(readers) = streams.readers.get(&self.task)
            && Arc::strong_count(readers) == 1
        {
            streams.readers.remove(&self.task);
        }
    }
}

fn bytes_of(content: &Content) -> usize {
    match content {
        Content::Chunk(chunk) => chunk.len(),
        Content::Rewind { .. } | Content::End => 0,
    }
}
