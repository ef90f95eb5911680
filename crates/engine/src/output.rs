//! One reader of a task's output: first what the log still has after the reader's number, then what
//! is written, until the task has ended.
//!
//! The log has the chunks; the store says whether the task has ended. An end in the log alone may
//! still be taken back by another attempt. A reader takes entries at its own pace and queues no
//! more than one batch. A reader that is too slow for the log gets a reset.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    Status, StoreError, TaskId,
    contract::{
        StreamLog,
        event_bus::{EventStream, Received, Subscription},
        store::Access,
        stream_log::{Content, Entries, Entry, StreamError},
    },
    time::millis,
};
use tokio::time::Instant;

use crate::Engine;

/// Entries that a reader takes at once: a mebibyte if all have the largest size.
const BATCH: usize = 16;
/// How long without an event until the store is asked whether the task has ended: events may be
/// lost.
const POLL_STORE_AFTER: Duration = Duration::from_secs(15);

/// A piece of a task's output. A reader that continues after its number misses nothing and sees
/// nothing twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Grows with each piece. A reset and the end have the number of the piece before them.
    pub number: u64,
    pub content: PieceContent,
}

/// The content of a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PieceContent {
    /// Text that the task has written.
    Chunk(String),
    /// A new attempt rewrites what came after the piece of this number; 0 is everything.
    Rewind {
        /// The last piece that still counts.
        to: u64,
    },
    /// The log no longer has what comes next for the reader. It continues from here.
    Reset {
        /// Why, for people.
        reason: &'static str,
    },
    /// The task has ended with this status; nothing follows.
    End(Status),
}

/// Why there is no next piece now. The next call continues where this one stopped.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The store is unavailable, or the task is gone.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log could not be read.
    #[error(transparent)]
    Log(#[from] StreamError),
}

/// A reader. Dropping it changes nothing.
#[derive(Debug)]
pub struct Output {
    engine: Arc<Engine>,
    streams: Arc<dyn StreamLog>,
    access: Access,
    id: TaskId,
    after: u64,
    events: Box<dyn EventStream>,
    pending: VecDeque<Piece>,
    /// The status at the end and whether the task has run, once the store has the end.
    ended: Option<(Status, bool)>,
    /// When to ask the store whether the task has ended.
    poll_store_at: Instant,
    is_over: bool,
}

impl Output {
    /// Reads from the start. A task that the caller may not see is not found.
    pub async fn open(
        engine: Arc<Engine>,
        streams: Arc<dyn StreamLog>,
        access: Access,
        id: TaskId,
    ) -> Result<Self, StoreError> {
        // The subscription comes before the read, so that no end falls between them.
        let events = engine.bus.subscribe(Subscription {
            task_id: Some(id),
            owner: None,
        });
        engine.store.get_task(&access, id).await?;

        Ok(Self {
            engine,
            streams,
            access,
            id,
            after: 0,
            events,
            pending: VecDeque::new(),
            ended: None,
            poll_store_at: Instant::now(),
            is_over: false,
        })
    }

    /// Continues after the piece of this number.
    #[must_use]
    pub const fn after(mut self, number: u64) -> Self {
        self.after = number;
        self
    }

    /// The next piece, as soon as there is one; `None` after the end. A dropped call loses nothing.
    pub async fn next(&mut self) -> Result<Option<Piece>, OutputError> {
        loop {
            if let Some(piece) = self.pending.pop_front() {
                return Ok(Some(piece));
            }
            if self.is_over {
                return Ok(None);
            }
            self.step().await?;
        }
    }

    /// Takes what the log has; otherwise checks whether the task has ended; otherwise waits.
    async fn step(&mut self) -> Result<(), OutputError> {
        let read = self.streams.read(self.id, self.after, BATCH).await?;
        self.reset_if_lost(&read);
        if !read.entries.is_empty() {
            for entry in read.entries {
                self.take(entry);
            }
            return Ok(());
        }

        // The log was read after the store had the end, and has no more: the output is complete.
        if let Some((status, has_run)) = self.ended {
            if read.last == 0 && has_run {
                self.reset(0, "no output of this task is kept here");
            }
            self.push(PieceContent::End(status));
            self.is_over = true;
            return Ok(());
        }

        if self.poll_store_at <= Instant::now() {
            let task = self.engine.store.get_task(&self.access, self.id).await?;
            self.poll_store_at = Instant::now() + POLL_STORE_AFTER;
            if task.status.is_ended() {
                self.ended = Some((task.status, task.attempt > 0));
                return Ok(());
            }
        }

        self.wait(read.last).await?;
        Ok(())
    }

    /// Waits for an entry, an event that may be the end, or the time to ask the store.
    async fn wait(&mut self, last: u64) -> Result<(), StreamError> {
        // While the log does not know the stream, any entry is new.
        let after = if last == 0 { 0 } else { self.after };
        let wait_ms = millis(POLL_STORE_AFTER) * 2;

        // Each branch may be dropped: the next step reads the log again.
        tokio::select! {
            written = self.streams.wait(self.id, after, wait_ms) => written?,
            Some(received) = self.events.next() => match received {
                Received::Event(event) if !event.status.is_ended() => {}
                Received::Event(_) | Received::Missed(_) => self.poll_store_at = Instant::now(),
            },
            () = tokio::time::sleep_until(self.poll_store_at) => {}
        }

        Ok(())
    }

    /// Adds a reset when the log no longer has what comes next for the reader, or when the reader's
    /// number belongs to a log that was lost.
    fn reset_if_lost(&mut self, read: &Entries) {
        let continues = match read.entries.first() {
            Some(Entry {
                content: Content::Rewind { to },
                ..
            }) => *to <= self.after,
            Some(_) | None => false,
        };
        let is_behind = self.after.saturating_add(1) < read.first_available && !continues;

        if is_behind {
            self.reset(
                read.first_available - 1,
                "what came before is no longer kept",
            );
        } else if read.last > 0 && read.last < self.after {
            self.reset(
                read.first_available - 1,
                "this offset is not of this stream",
            );
        }
    }

    fn reset(&mut self, number: u64, reason: &'static str) {
        self.after = number;
        self.push(PieceContent::Reset { reason });
    }

    fn take(&mut self, entry: Entry) {
        if entry.number <= self.after {
            return;
        }

        self.after = entry.number;
        match entry.content {
            Content::Chunk(text) => self.push(PieceContent::Chunk(text)),
            Content::Rewind { to } => self.push(PieceContent::Rewind { to }),
            // The store decides whether this is the end.
            Content::End => self.poll_store_at = Instant::now(),
        }
    }

    fn push(&mut self, content: PieceContent) {
        self.pending.push_back(Piece {
            number: self.after,
            content,
        });
    }
}
