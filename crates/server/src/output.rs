//! A task's output as server-sent events. The engine reads the output; this module writes it for
//! clients.
//!
//! Each reader takes from the log at its own pace. The listener closes a client that does not read;
//! it reconnects with the id of the last event that it received.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::Event;
use futures::Stream;
use longhaul_api::{OutputChunk, OutputEnd, OutputReset, OutputRewind};
use longhaul_domain::{StoreError, TaskId, contract::store::Access};
use longhaul_engine::output::{Output, OutputError, Piece, PieceContent};
use serde::Serialize;

use crate::{
    api::Api,
    live::{HEARTBEAT, RECONNECT_AFTER},
    observe::OpenStream,
};

/// The pause after a failed read of the log or the store.
const READ_RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct OutputReader {
    api: Arc<Api>,
    output: Output,
    /// Whether the client has its reconnect delay.
    has_sent_preamble: bool,
    _open: OpenStream,
}

impl OutputReader {
    /// A task that the caller may not see is `NotFound`.
    pub(crate) async fn start(
        api: Arc<Api>,
        access: Access,
        id: TaskId,
    ) -> Result<Self, StoreError> {
        let engine = Arc::clone(&api.engine);
        let output = Output::open(engine, Arc::clone(&api.streams), access, id).await?;
        let _open = api.http.open_stream();

        Ok(Self {
            api,
            output,
            has_sent_preamble: false,
            _open,
        })
    }

    /// Starts after this offset.
    pub(crate) fn after(mut self, offset: u64) -> Self {
        self.output = self.output.after(offset);
        self
    }

    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        // Boxed, so that thousands of idle streams are small.
        futures::stream::unfold(Box::new(self), |mut reader| async {
            let event = reader.next().await?;
            Some((Ok(event), reader))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        if !self.has_sent_preamble {
            self.has_sent_preamble = true;
            return Some(Event::default().retry(RECONNECT_AFTER));
        }

        loop {
            // The branches only wait: a read that is dropped starts again at the same offset.
            let next = tokio::select! {
                () = self.api.closing.cancelled() => return None,
                next = self.output.next() => next,
                () = tokio::time::sleep(HEARTBEAT) => {
                    return Some(Event::default().comment("still here"));
                }
            };

            match next {
                Ok(piece) => return piece.map(event_of),
                // Retention has removed the task and its output.
                Err(OutputError::Store(StoreError::NotFound)) => return None,
                Err(error) => {
                    tracing::debug!(%error, "output stream: read failed; retrying");
                    tokio::time::sleep(READ_RETRY).await;
                }
            }
        }
    }
}

fn event_of(Piece { number, content }: Piece) -> Event {
    match content {
        PieceContent::Chunk(text) => serialized("chunk", number, &OutputChunk { text }),
        PieceContent::Rewind { to } => serialized("rewind", number, &OutputRewind { offset: to }),
        PieceContent::Reset { reason } => {
            let reset = OutputReset {
                offset: number,
                reason: reason.to_owned(),
            };
            serialized("reset", number, &reset)
        }
        PieceContent::End(status) => serialized("end", number, &OutputEnd { status }),
    }
}

fn serialized(name: &str, number: u64, data: &impl Serialize) -> Event {
    let text = serde_json::to_string(data).unwrap_or_else(|error| {
        tracing::error!(%error, "output stream: event could not be serialized; sending null");
        "null".to_owned()
    });

    Event::default()
        .event(name)
        .id(number.to_string())
        .data(text)
}
