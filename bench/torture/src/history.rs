//! The client's requests and the answers.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use longhaul_domain::Clock as _;
use longhaul_store::SystemClock;
use serde::Serialize;
use uuid::Uuid;

use crate::{
    gateway::{Answer, Gateway, Request},
    plan::Item,
};

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Asked {
    Submit,
    Cancel,
    Read,
}

/// One request for one item. Both times are microseconds since 1970 by the client's clock.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Call {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) asked: Asked,
    pub(crate) answer: Answer,
}

/// All calls for one item.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ItemHistory {
    pub(crate) item: Item,
    pub(crate) calls: Vec<Call>,
}

impl ItemHistory {
    /// The ids of acknowledged submits. Different ids are a broken promise.
    pub(crate) fn acknowledged(&self) -> impl Iterator<Item = Uuid> {
        self.calls.iter().filter_map(|call| {
            if let Answer::Submitted(id) = call.answer {
                Some(id)
            } else {
                None
            }
        })
    }

    /// Whether a submit was sent.
    pub(crate) fn was_sent(&self) -> bool {
        self.calls.iter().any(|call| call.asked == Asked::Submit)
    }
}

/// The history of all items, in the order of the plan.
#[derive(Debug)]
pub(crate) struct History {
    clock: SystemClock,
    histories: Mutex<Vec<ItemHistory>>,
}

impl History {
    pub(crate) fn new(items: Vec<Item>) -> Self {
        let histories = items
            .into_iter()
            .map(|item| ItemHistory {
                item,
                calls: Vec::new(),
            })
            .collect();

        Self {
            clock: SystemClock::default(),
            histories: Mutex::new(histories),
        }
    }

    /// Sends a request and records it with its answer.
    pub(crate) async fn ask(
        &self,
        n: usize,
        gateway: &Gateway,
        asked: Asked,
        request: Request,
    ) -> Answer {
        let from = self.clock.now().as_micros();
        let answer = gateway.ask(request).await;
        let call = Call {
            from,
            to: self.clock.now().as_micros(),
            asked,
            answer: answer.clone(),
        };

        // Many items are followed at once, each by its own task.
        let mut histories = self
            .histories
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(history) = histories.get_mut(n) {
            history.calls.push(call);
        }

        answer
    }

    pub(crate) fn into_histories(self) -> Vec<ItemHistory> {
        self.histories
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the history to a file.
pub(crate) fn write(histories: &[ItemHistory], path: &Path) -> anyhow::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for history in histories {
        serde_json::to_writer(&mut file, history)?;
        file.write_all(b"\n")?;
    }

    Ok(file.flush()?)
}
