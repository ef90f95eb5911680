//! One reader of a task's output: what is kept after its offset, then what is written, until the task has ended.
//!
//! The log has the chunks, the store says whether the task has ended; an end that the log tells of may still be taken
//! back by another attempt. A reader takes from the log at its own pace and has nothing queued but one small portion.
//! Whoever is too slow for the log is told so by a `reset`; whoever does not read at all is closed by the listener, and
//! comes back with the id of the last event that it has.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::Event;
use futures::Stream;
use longhaul_api::{OutputChunk, OutputEnd, OutputReset, OutputRewind};
use longhaul_domain::{
    StoreError, Task, TaskId,
    contract::{
        event_bus::{EventStream, Heard, Subscription},
        store::Access,
        stream_log::{Content, Entries, Entry, StreamError},
    },
};
use serde::Serialize;

use crate::{
    api::Api,
    live::{COME_BACK, HEARTBEAT},
    observe::OpenStream,
};

/// Entries that a reader takes at once: a mebibyte if all are as large as they may be.
const PORTION: usize = 16;
/// How long a reader rests when log or store does not answer.
const REST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct OutputReader {
    api: Arc<Api>,
    access: Access,
    id: TaskId,
    after: u64,
    news: Box<dyn EventStream>,
    pending: VecDeque<Event>,
    /// The task as the store had it after its end.
    ended: Option<Box<Task>>,
    /// Whether the store should be asked if the task has ended.
    is_unsure: bool,
    is_over: bool,
    _open: OpenStream,
}

impl OutputReader {
    /// A task that the caller may not see is not found.
    pub(crate) async fn start(api: Arc<Api>, access: Access, id: TaskId) -> Result<Self, StoreError> {
        // Listening starts before the look, so that no end can fall between them.
        let news = api.engine.bus.subscribe(Subscription { task_id: Some(id), owner: None });
        api.engine.store.get_task(&access, id).await?;
        let pending = VecDeque::from([Event::default().retry(COME_BACK)]);
        let _open = api.http.open_stream();
        Ok(Self { api, access, id, after: 0, news, pending, ended: None, is_unsure: true, is_over: false, _open })
    }

    /// Goes on after this offset.
    pub(crate) fn after(mut self, offset: u64) -> Self {
        self.after = offset;
        self
    }

    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        futures::stream::unfold(Box::new(self), |mut reader| async {
            let event = reader.next().await?;
            Some((Ok(event), reader))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            if self.is_over || self.api.closing.is_cancelled() {
                return None;
            }
            match self.step().await {
                Ok(()) => {}
                // Retention has removed the task and its output.
                Err(Trouble::Store(StoreError::NotFound)) => return None,
                Err(error) => {
                    tracing::debug!(%error, "a reader of output could not look and tries again");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    /// Takes what is there; else looks whether the task has ended; else waits.
    async fn step(&mut self) -> Result<(), Trouble> {
        let read = self.api.streams.read(self.id, self.after, PORTION).await?;
        self.reset_if_lost(&read);
        if !read.entries.is_empty() {
            read.entries.into_iter().for_each(|entry| self.take(entry));
            return Ok(());
        }
        if let Some(task) = &self.ended {
            // Nothing came between the look at the task and this one at the log: it was all.
            let (status, has_run) = (task.status, task.attempt > 0);
            if read.last == 0 && has_run {
                self.reset(0, "no output of this task is kept here");
            }
            self.push("end", &OutputEnd { status });
            self.is_over = true;
            return Ok(());
        }
        if self.is_unsure {
            let task = self.api.engine.store.get_task(&self.access, self.id).await?;
            self.is_unsure = false;
            if task.status.is_ended() {
                self.ended = Some(Box::new(task));
                return Ok(());
            }
        }
        self.wait(read.last).await?;
        Ok(())
    }

    async fn wait(&mut self, last: u64) -> Result<(), StreamError> {
        // While the log knows nothing of the stream, anything that is written counts.
        let after = if last == 0 { 0 } else { self.after };
        let (api, wait_ms) = (Arc::clone(&self.api), HEARTBEAT.as_millis() as u64);
        let beat = tokio::time::sleep(HEARTBEAT);
        tokio::select! {
            () = api.closing.cancelled() => {}
            written = api.streams.wait(self.id, after, wait_ms * 2) => written?,
            heard = self.news.next() => self.is_unsure = match heard {
                Some(Heard::Event(event)) => event.status.is_ended(),
                Some(Heard::Missed(_)) | None => true,
            },
            () = beat => {
                self.pending.push_back(Event::default().comment("still here"));
                self.is_unsure = true;
            }
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
        let is_behind = self.after.saturating_add(1) < read.first_kept && !read.entries.first().is_some_and(goes_on);
        if is_behind {
            self.reset(read.first_kept - 1, "what came before is no longer kept");
        } else if read.last > 0 && read.last < self.after {
            self.reset(read.first_kept - 1, "this offset is not of this stream");
        }
    }

    fn reset(&mut self, offset: u64, reason: &str) {
        self.after = offset;
        self.push("reset", &OutputReset { offset, reason: reason.to_owned() });
    }

    fn take(&mut self, entry: Entry) {
        if entry.number <= self.after {
            return;
        }
        self.after = entry.number;
        match entry.content {
            Content::Chunk(text) => self.push("chunk", &OutputChunk { text }),
            Content::Rewind { to } => self.push("rewind", &OutputRewind { offset: to }),
            // The store says whether it is one.
            Content::End => self.is_unsure = true,
        }
    }

    fn push(&mut self, name: &str, data: &impl Serialize) {
        match serde_json::to_string(data) {
            Ok(text) => self.pending.push_back(Event::default().event(name).id(self.after.to_string()).data(text)),
            Err(error) => tracing::error!(%error, "output could not be written"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] StreamError),
}
