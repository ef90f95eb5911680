//! A task's output as server-sent events. The reader itself is the engine's; this one knows clients.
//!
//! A reader takes from the log at its own pace. Whoever does not read at all is closed by the listener, and comes back with
//! the id of the last event that it has.

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
    live::{COME_BACK, HEARTBEAT},
    observe::OpenStream,
};

/// How long a reader rests when log or store does not answer.
const REST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct OutputReader {
    api: Arc<Api>,
    output: Output,
    /// Whether the client was told when to come back.
    is_greeted: bool,
    _open: OpenStream,
}

impl OutputReader {
    /// A task that the caller may not see is not found.
    pub(crate) async fn start(
        api: Arc<Api>,
        access: Access,
        id: TaskId,
    ) -> Result<Self, StoreError> {
        let output = Output::open(
            Arc::clone(&api.engine),
            Arc::clone(&api.streams),
            access,
            id,
        )
        .await?;
        let _open = api.http.open_stream();
        Ok(Self {
            api,
            output,
            is_greeted: false,
            _open,
        })
    }

    /// Goes on after this offset.
    pub(crate) fn after(mut self, offset: u64) -> Self {
        self.output = self.output.after(offset);
        self
    }

    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        futures::stream::unfold(Box::new(self), |mut reader| async {
            let event = reader.next().await?;
            Some((Ok(event), reader))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        if !std::mem::replace(&mut self.is_greeted, true) {
            return Some(Event::default().retry(COME_BACK));
        }
        loop {
            let next = tokio::select! {
                () = self.api.closing.cancelled() => return None,
                next = self.output.next() => next,
                () = tokio::time::sleep(HEARTBEAT) => return Some(Event::default().comment("still here")),
            };
            match next {
                Ok(piece) => return piece.map(event),
                // Retention has removed the task and its output.
                Err(OutputError::Store(StoreError::NotFound)) => return None,
                Err(error) => {
                    tracing::debug!(%error, "a reader of output could not look and tries again");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }
}

fn event(Piece { number, content }: Piece) -> Event {
    match content {
        PieceContent::Chunk(text) => named("chunk", number, &OutputChunk { text }),
        PieceContent::Rewind { to } => named("rewind", number, &OutputRewind { offset: to }),
        PieceContent::Reset { reason } => named(
            "reset",
            number,
            &OutputReset {
                offset: number,
                reason: reason.to_owned(),
            },
        ),
        PieceContent::End(status) => named("end", number, &OutputEnd { status }),
    }
}

fn named(name: &str, number: u64, data: &impl Serialize) -> Event {
    let text = serde_json::to_string(data).unwrap_or_else(|error| {
        tracing::error!(%error, "output could not be written");
        "null".to_owned()
    });
    Event::default()
        .event(name)
        .id(number.to_string())
        .data(text)
}
