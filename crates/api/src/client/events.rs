//! Live updates that reconnect.
//!
//! The server sends the current state at the start of each connection, so that a broken connection
//! loses nothing: the next state includes what was missed.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use eventsource_stream::{Event, EventStreamError, Eventsource as _};
use futures::{Stream, StreamExt as _};
use longhaul_domain::TaskId;
use reqwest::Method;

use super::{Client, ClientError};
use crate::{event::TaskEventView, page::Page, task::TaskSummary};

/// The first delay before reconnecting. It doubles up to [`LONGEST_BACKOFF`].
const BACKOFF: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

type Incoming = Pin<Box<dyn Stream<Item = Result<Event, EventStreamError<reqwest::Error>>> + Send>>;

/// What a stream is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    Task(TaskId),
    /// All of the caller's tasks.
    Caller,
}

/// An update of a stream.
#[derive(Debug)]
pub enum Update {
    /// The current state of the task: first, and after each gap.
    State(Box<TaskSummary>),
    /// The current state of the caller's open tasks.
    States(Page<TaskSummary>),
    Event(Box<TaskEventView>),
    /// The connection is lost; the next call reconnects.
    Lost(ClientError),
}

/// A stream of updates.
pub struct Events {
    client: Client,
    about: About,
    incoming: Option<Incoming>,
    backoff: Duration,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("about", &self.about)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Opens a stream. A failed first connection is an error; a later one is retried.
    pub async fn events(&self, about: About) -> Result<Events, ClientError> {
        let mut events = Events {
            client: self.clone(),
            about,
            incoming: None,
            backoff: BACKOFF,
        };

        events.incoming = Some(events.connect().await?);
        Ok(events)
    }
}

impl Events {
    /// The next update. An error is permanent: the server refuses the stream.
    pub async fn next(&mut self) -> Result<Update, ClientError> {
        loop {
            let Some(incoming) = &mut self.incoming else {
                tokio::time::sleep(self.backoff).await;
                self.backoff = (self.backoff * 2).min(LONGEST_BACKOFF);
                match self.connect().await {
                    Ok(incoming) => self.incoming = Some(incoming),
                    Err(error) if error.is_transient() => return Ok(Update::Lost(error)),
                    Err(error) => return Err(error),
                }

                continue;
            };

            match incoming.next().await {
                Some(Ok(event)) => {
                    self.backoff = BACKOFF;
                    if let Some(update) = self.read(&event)? {
                        return Ok(update);
                    }
                }
                Some(Err(error)) => return Ok(self.lose(&error.to_string())),
                None => return Ok(self.lose("the server closed the stream")),
            }
        }
    }

    async fn connect(&self) -> Result<Incoming, ClientError> {
        let request = match self.about {
            About::Task(id) => {
                self.client
                    .request(Method::GET, &["tasks", &id.to_string(), "events"], &[])
            }
            About::Caller => self.client.request(Method::GET, &["events"], &[]),
        };

        let response = self
            .client
            .open(request.header("accept", "text/event-stream"))
            .await?;
        Ok(Box::pin(response.bytes_stream().eventsource()))
    }

    fn lose(&mut self, problem: &str) -> Update {
        self.incoming = None;
        Update::Lost(ClientError::Lost {
            url: self.client.url().to_owned(),
            problem: problem.to_owned(),
        })
    }

    /// The update in an event; nothing for a heartbeat.
    fn read(&self, event: &Event) -> Result<Option<Update>, ClientError> {
        if event.data.is_empty() {
            return Ok(None);
        }

        let update = match (event.event.as_str(), self.about) {
            ("state", About::Task(_)) => {
                serde_json::from_str(&event.data).map(|task| Update::State(Box::new(task)))
            }
            ("state", About::Caller) => serde_json::from_str(&event.data).map(Update::States),
            // Events of unknown kinds, from newer servers, are skipped.
            _ => {
                let event = serde_json::from_str(&event.data).ok();
                return Ok(event.map(|event| Update::Event(Box::new(event))));
            }
        };

        update
            .map(Some)
            .map_err(|error| ClientError::Unreadable(error.to_string()))
    }
}
