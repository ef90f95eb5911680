//! Live news as server-sent events.

use std::convert::Infallible;

use axum::response::sse::Event;
use futures::Stream;
use longhaul_domain::{StoreError, TaskId, contract::store::Access};
use serde::Serialize;
use std::sync::Arc;
use tokio::time::Instant;

use crate::{
    api::Api,
    live::{COME_BACK, Follower, HEARTBEAT, Told, unheard::next_look},
};

/// What a stream is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    Task(TaskId),
    Owner,
}

/// The events of one client. Boxed, so that thousands who only wait are small.
pub(crate) async fn events(
    api: Arc<Api>,
    access: Access,
    about: About,
) -> Result<impl Stream<Item = Result<Event, Infallible>> + Send + 'static, StoreError> {
    let mut follower = match about {
        About::Task(id) => Follower::start(Arc::clone(&api), access, Some(id)),
        About::Owner => Follower::start(Arc::clone(&api), access, None),
    };
    match about {
        About::Task(id) => follower.follow_task(id).await?,
        About::Owner => follower.follow_all().await?,
    }
    let first = Some(Event::default().retry(COME_BACK));
    let (look_at, said_at) = (next_look(&api).await, Instant::now());
    let client = Box::new(Client {
        api,
        about,
        follower,
        first,
        look_at,
        said_at,
    });
    Ok(futures::stream::unfold(client, |mut client| async {
        let event = client.next().await?;
        Some((Ok(event), client))
    }))
}

struct Client {
    api: Arc<Api>,
    about: About,
    follower: Follower,
    first: Option<Event>,
    /// When to look for changes without news.
    look_at: Instant,
    said_at: Instant,
}

impl Client {
    async fn next(&mut self) -> Option<Event> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let event = self.find().await?;
        self.said_at = Instant::now();
        Some(event)
    }

    async fn find(&mut self) -> Option<Event> {
        loop {
            while let Some(told) = self.follower.take() {
                if let Some(event) = event_of(&told) {
                    return Some(event);
                }
            }
            if self.said_at.elapsed() >= HEARTBEAT {
                return Some(Event::default().comment("still here"));
            }
            let until = self.look_at.min(self.said_at + HEARTBEAT);
            let heard = tokio::select! {
                () = self.api.closing.cancelled() => return None,
                heard = self.follower.hear() => Some(heard?),
                () = tokio::time::sleep_until(until) => None,
            };
            let looked = match heard {
                Some(heard) => self.follower.digest(heard).await,
                None => self.look_if_due().await,
            };
            self.goes_on(looked)?;
        }
    }

    async fn look_if_due(&mut self) -> Result<(), StoreError> {
        if Instant::now() < self.look_at {
            return Ok(());
        }
        let looked = self.follower.look_again().await;
        self.look_at = next_look(&self.api).await;
        looked
    }

    /// Retention has removed the task: there is nothing left to tell. Any other trouble passes.
    fn goes_on(&self, looked: Result<(), StoreError>) -> Option<()> {
        match looked {
            Ok(()) => Some(()),
            Err(StoreError::NotFound) if self.about != About::Owner => None,
            Err(error) => {
                tracing::debug!(%error, "a live stream could not look and goes on");
                Some(())
            }
        }
    }
}

fn event_of(told: &Told) -> Option<Event> {
    match told {
        Told::State(task) => written("state", task),
        Told::States(page) => written("state", page),
        Told::News { id, news } => written(news.event.as_str(), news).map(|event| event.id(id)),
    }
}

fn written(name: &str, data: &impl Serialize) -> Option<Event> {
    match serde_json::to_string(data) {
        Ok(text) => Some(Event::default().event(name).data(text)),
        Err(error) => {
            tracing::error!(%error, "news could not be written");
            None
        }
    }
}
