//! One reader of a task's output: what is kept after its number, then what is written, until the task has ended.
//!
//! The log has the chunks, the store says whether the task has ended; an end that the log tells of may still be taken
//! back by another attempt. A reader takes from the log at its own pace and has nothing queued but one small portion.
//! Whoever is too slow for the log is told so by a reset.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    Status, StoreError, TaskId,
    contract::{
        StreamLog,
        event_bus::{EventStream, Heard, Subscription},
        store::Access,
        stream_log::{Content, Entries, Entry, StreamError},
    },
};
use tokio::time::Instant;

use crate::Engine;

/// Entries that a reader takes at once: a mebibyte if all are as large as they may be.
const PORTION: usize = 16;
/// How long nothing is heard before the store is asked whether the task has ended: news may be lost.
const ASK_AFTER: Duration = Duration::from_secs(15);

/// A part of a task's output, with its number: who goes on after that misses nothing and sees nothing twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Grows with each piece. A reset and the end have that of the piece before them.
    pub number: u64,
    /// What it says.
    pub content: PieceContent,
}

/// What a piece of output says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PieceContent {
    /// Text that the task has written.
    Chunk(String),
    /// A new attempt writes anew what came after the piece of this number; 0 is everything.
    Rewind {
        /// The last piece that still counts.
        to: u64,
    },
    /// What the reader would have gone on with is no longer kept. It goes on from here.
    Reset {
        /// Why, for people.
        reason: &'static str,
    },
    /// The task has ended like this; nothing follows.
    End(Status),
}

/// Why there is no next piece just now. Asking again goes on where it was.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The store could not be asked, or the task is gone.
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
    news: Box<dyn EventStream>,
    pending: VecDeque<Piece>,
    /// How the task ended, and whether it has run, as the store had it after its end.
    ended: Option<(Status, bool)>,
    /// When the store is to be asked whether the task has ended.
    ask_at: Instant,
    is_over: bool,
}

impl Output {
    /// Everything from the start. A task that the caller may not see is not found.
    pub async fn open(
        engine: Arc<Engine>,
        streams: Arc<dyn StreamLog>,
        access: Access,
        id: TaskId,
    ) -> Result<Self, StoreError> {
        // Listening starts before the look, so that no end can fall between them.
        let news = engine.bus.subscribe(Subscription {
            task_id: Some(id),
            owner: None,
        });
        engine.store.get_task(&access, id).await?;
        let (pending, ask_at) = (VecDeque::new(), Instant::now());
        Ok(Self {
            engine,
            streams,
            access,
            id,
            after: 0,
            news,
            pending,
            ended: None,
            ask_at,
            is_over: false,
        })
    }

    /// Goes on after the piece of this number, for a reader who was there before.
    #[must_use]
    pub const fn after(mut self, number: u64) -> Self {
        self.after = number;
        self
    }

    /// The next piece, as soon as there is one; nothing after the end. Giving up the wait loses nothing.
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

    /// Takes what is there; else looks whether the task has ended; else waits.
    async fn step(&mut self) -> Result<(), OutputError> {
        let read = self.streams.read(self.id, self.after, PORTION).await?;
        self.reset_if_lost(&read);
        if !read.entries.is_empty() {
            read.entries.into_iter().for_each(|entry| self.take(entry));
            return Ok(());
        }
        if let Some((status, has_run)) = self.ended {
            // Nothing came between the look at the task and this one at the log: it was all.
            if read.last == 0 && has_run {
                self.reset(0, "no output of this task is kept here");
            }
            self.push(PieceContent::End(status));
            self.is_over = true;
            return Ok(());
        }
        if self.ask_at <= Instant::now() {
            let task = self.engine.store.get_task(&self.access, self.id).await?;
            self.ask_at = Instant::now() + ASK_AFTER;
            if task.status.is_ended() {
                self.ended = Some((task.status, task.attempt > 0));
                return Ok(());
            }
        }
        self.wait(read.last).await?;
        Ok(())
    }

    async fn wait(&mut self, last: u64) -> Result<(), StreamError> {
        // While the log knows nothing of the stream, anything that is written counts.
        let after = if last == 0 { 0 } else { self.after };
        let wait_ms = ASK_AFTER.as_millis() as u64 * 2;
        tokio::select! {
            written = self.streams.wait(self.id, after, wait_ms) => written?,
            Some(heard) = self.news.next() => match heard {
                Heard::Event(event) if !event.status.is_ended() => {}
                Heard::Event(_) | Heard::Missed(_) => self.ask_at = Instant::now(),
            },
            () = tokio::time::sleep_until(self.ask_at) => {}
        }
        Ok(())
    }

    /// Says so when something that the reader does not have is no longer there, or when the reader comes from a log that
    /// is.
    fn reset_if_lost(&mut self, read: &Entries) {
        let goes_on = |entry: &Entry| match entry.content {
            Content::Rewind { to } => to <= self.after,
            Content::Chunk(_) | Content::End => false,
        };
        let is_behind = self.after.saturating_add(1) < read.first_kept
            && !read.entries.first().is_some_and(goes_on);
        if is_behind {
            self.reset(read.first_kept - 1, "what came before is no longer kept");
        } else if read.last > 0 && read.last < self.after {
            self.reset(read.first_kept - 1, "this offset is not of this stream");
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
            // The store says whether it is one.
            Content::End => self.ask_at = Instant::now(),
        }
    }

    fn push(&mut self, content: PieceContent) {
        self.pending.push_back(Piece {
            number: self.after,
            content,
        });
    }
}
