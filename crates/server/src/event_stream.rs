//! Live updates as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::Event;
use futures::Stream;
use longhaul_domain::{StoreError, TaskId, contract::store::Access};
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    api::Api,
    live::{Follower, HEARTBEAT, LiveMessage, RECONNECT_AFTER, missed_changes::next_poll},
};

/// What a stream is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    Task(TaskId),
    Owner,
}

/// The events of one client.
pub(crate) async fn events(
    api: Arc<Api>,
    access: Access,
    about: About,
) -> Result<impl Stream<Item = Result<Event, Infallible>> + Send + 'static, StoreError> {
    let task_id = match about {
        About::Task(id) => Some(id),
        About::Owner => None,
    };
    let mut follower = Follower::start(Arc::clone(&api), access, task_id);
    match task_id {
        Some(id) => follower.follow_task(id).await?,
        None => follower.follow_all().await?,
    }

    let poll_at = next_poll(&api).await;
    // Boxed, so that thousands of idle streams are small.
    let stream = Box::new(EventStream {
        api,
        about,
        follower,
        preamble: Some(Event::default().retry(RECONNECT_AFTER)),
        poll_at,
        last_sent: Instant::now(),
    });
    Ok(futures::stream::unfold(stream, |mut stream| async {
        let event = stream.next().await?;
        Some((Ok(event), stream))
    }))
}

struct EventStream {
    api: Arc<Api>,
    about: About,
    follower: Follower,
    /// Sent first.
    preamble: Option<Event>,
    poll_at: Instant,
    last_sent: Instant,
}

impl EventStream {
    async fn next(&mut self) -> Option<Event> {
        if let Some(preamble) = self.preamble.take() {
            return Some(preamble);
        }

        let event = self.next_update().await?;
        self.last_sent = Instant::now();
        Some(event)
    }

    /// The next update, or a comment when there is none for a heartbeat.
    async fn next_update(&mut self) -> Option<Event> {
        loop {
            while let Some(update) = self.follower.take() {
                if let Some(event) = event_of(&update) {
                    return Some(event);
                }
            }

            if self.last_sent.elapsed() >= HEARTBEAT {
                return Some(Event::default().comment("still here"));
            }

            // The branches only wait, so that nothing is lost with the ones that are dropped.
            let wake_at = self.poll_at.min(self.last_sent + HEARTBEAT);
            let received = tokio::select! {
                () = self.api.closing.cancelled() => return None,
                received = self.follower.receive() => Some(received?),
                () = tokio::time::sleep_until(wake_at) => None,
            };

            let read = match received {
                Some(received) => self.follower.apply(received).await,
                None => self.poll_if_due().await,
            };
            match read {
                Ok(()) => {}
                // Retention has removed the task: the stream ends.
                Err(StoreError::NotFound) if self.about != About::Owner => return None,
                Err(error) => {
                    tracing::debug!(%error, "event stream: reading tasks failed; retrying");
                }
            }
        }
    }

    async fn poll_if_due(&mut self) -> Result<(), StoreError> {
        if Instant::now() < self.poll_at {
            return Ok(());
        }

        let polled = self.follower.poll_changes().await;
        self.poll_at = next_poll(&self.api).await;
        polled
    }
}

fn event_of(update: &LiveMessage) -> Option<Event> {
    match update {
        LiveMessage::State(task) => serialized("state", task),
        LiveMessage::States(page) => serialized("state", page),
        LiveMessage::Event { id, event } => {
            serialized(event.event.as_str(), event).map(|event| event.id(id))
        }
    }
}

fn serialized(name: &str, data: &impl Serialize) -> Option<Event> {
    match serde_json::to_string(data) {
        Ok(text) => Some(Event::default().event(name).data(text)),
        Err(error) => {
            tracing::error!(%error, "event stream: event could not be serialized; dropping it");
            None
        }
    }
}
