//! What the client asked, and what it was told.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use longhaul_domain::Clock as _;
use longhaul_store::SystemClock;
use serde::Serialize;
use uuid::Uuid;

use crate::{
    door::{Answer, Door, Request},
    plan::Item,
};

/// What a call was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Asked {
    Submit,
    Cancel,
    Read,
}

/// One question about one item. Both times are microseconds since 1970 by the client's clock.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Call {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) asked: Asked,
    pub(crate) answer: Answer,
}

/// Everything about one item.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Story {
    pub(crate) item: Item,
    pub(crate) calls: Vec<Call>,
}

impl Story {
    /// The ids that acknowledged submits named; more than one kind of them is a broken promise.
    pub(crate) fn acknowledged(&self) -> impl Iterator<Item = Uuid> {
        self.calls.iter().filter_map(|call| {
            if let Answer::Submitted(id) = call.answer {
                Some(id)
            } else {
                None
            }
        })
    }

    /// Whether a submit was ever sent.
    pub(crate) fn was_sent(&self) -> bool {
        self.calls.iter().any(|call| call.asked == Asked::Submit)
    }
}

/// The whole history, one story for each item of the plan, in its order.
#[derive(Debug)]
pub(crate) struct History {
    clock: SystemClock,
    stories: Mutex<Vec<Story>>,
}

impl History {
    pub(crate) fn new(items: Vec<Item>) -> Self {
        let stories = items
            .into_iter()
            .map(|item| Story {
                item,
                calls: Vec::new(),
            })
            .collect();
        Self {
            clock: SystemClock::default(),
            stories: Mutex::new(stories),
        }
    }

    /// Asks, and writes down the question with its answer.
    pub(crate) async fn ask(
        &self,
        n: usize,
        door: &Door,
        asked: Asked,
        request: Request,
    ) -> Answer {
        let from = self.clock.now().as_micros();
        let answer = door.ask(request).await;
        let call = Call {
            from,
            to: self.clock.now().as_micros(),
            asked,
            answer: answer.clone(),
        };
        if let Some(story) = self
            .stories
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_mut(n)
        {
            story.calls.push(call);
        }
        answer
    }

    pub(crate) fn into_stories(self) -> Vec<Story> {
        self.stories
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the history for people.
pub(crate) fn write(stories: &[Story], path: &Path) -> anyhow::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for story in stories {
        serde_json::to_writer(&mut file, story)?;
        file.write_all(b"\n")?;
    }
    Ok(file.flush()?)
}
