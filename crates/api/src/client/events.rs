//! Live news that outlive their connection.
//!
//! A stream starts with the current state each time it is opened, so that a connection that breaks costs nothing but
//! time: what was missed is in the next state.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use eventsource_stream::{Event, EventStreamError, Eventsource as _};
use futures::{Stream, StreamExt as _};
use longhaul_domain::TaskId;
use reqwest::Method;

use super::{Client, ClientError};
use crate::{event::TaskNews, page::Page, task::TaskSummary};

/// The first wait before a lost connection is opened again; it doubles up to [`LONGEST_REST`].
const REST: Duration = Duration::from_millis(500);
const LONGEST_REST: Duration = Duration::from_secs(10);

type Incoming = Pin<Box<dyn Stream<Item = Result<Event, EventStreamError<reqwest::Error>>> + Send>>;

/// What a stream is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    Task(TaskId),
    /// All of the caller's tasks.
    Caller,
}

/// What a stream tells.
#[derive(Debug)]
pub enum Told {
    /// How the task stands now: the first word, and again after each gap.
    State(Box<TaskSummary>),
    /// How the caller's open tasks stand now.
    States(Page<TaskSummary>),
    News(Box<TaskNews>),
    /// The connection is gone; the next call opens it again.
    Lost(ClientError),
}

/// A stream of news.
pub struct Events {
    client: Client,
    about: About,
    incoming: Option<Incoming>,
    rest: Duration,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("about", &self.about)
            .field("rest", &self.rest)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Opens a stream. One that cannot be opened now is an error; one that breaks later is opened again.
    pub async fn events(&self, about: About) -> Result<Events, ClientError> {
        let mut events = Events {
            client: self.clone(),
            about,
            incoming: None,
            rest: REST,
        };
        events.incoming = Some(events.connect().await?);
        Ok(events)
    }
}

impl Events {
    /// The next word. An error is the end: the server says no, and would say it again.
    pub async fn next(&mut self) -> Result<Told, ClientError> {
        loop {
            let Some(incoming) = &mut self.incoming else {
                tokio::time::sleep(self.rest).await;
                self.rest = (self.rest * 2).min(LONGEST_REST);
                match self.connect().await {
                    Ok(incoming) => self.incoming = Some(incoming),
                    Err(error) if error.is_transient() => return Ok(Told::Lost(error)),
                    Err(error) => return Err(error),
                }
                continue;
            };
            match incoming.next().await {
                Some(Ok(event)) => {
                    self.rest = REST;
                    if let Some(told) = self.read(&event)? {
                        return Ok(told);
                    }
                }
                Some(Err(error)) => return Ok(self.lose(&error.to_string())),
                None => return Ok(self.lose("the server has ended it")),
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

    fn lose(&mut self, problem: &str) -> Told {
        self.incoming = None;
        Told::Lost(ClientError::Lost {
            url: self.client.url().to_owned(),
            problem: problem.to_owned(),
        })
    }

    /// Nothing, if it is for nobody.
    fn read(&self, event: &Event) -> Result<Option<Told>, ClientError> {
        if event.data.is_empty() {
            return Ok(None);
        }
        let told = match (event.event.as_str(), self.about) {
            ("state", About::Task(_)) => {
                serde_json::from_str(&event.data).map(|task| Told::State(Box::new(task)))
            }
            ("state", About::Caller) => serde_json::from_str(&event.data).map(Told::States),
            // News of a kind that this version does not know are no reason to stop listening.
            _ => {
                return Ok(serde_json::from_str(&event.data)
                    .ok()
                    .map(|news| Told::News(Box::new(news))));
            }
        };
        told.map(Some)
            .map_err(|error| ClientError::Unreadable(error.to_string()))
    }
}
