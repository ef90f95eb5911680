//! The consumer of reported progress.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::contract::broker::{ProgressInbox, ProgressReport};

use super::{connection::Shared, consumer::Intake, message, publisher};
use crate::names;

#[derive(Debug)]
pub(super) struct RabbitInbox {
    shared: Arc<Shared>,
    intake: Intake,
}

impl RabbitInbox {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let intake = Intake::new(shared, names::PROGRESS_QUEUE.to_owned(), None);
        Self {
            shared: Arc::clone(shared),
            intake,
        }
    }

    /// The queue overflows when nobody reads it, so it has no dead letters of its own: this one is put there by hand.
    fn set_aside(&mut self, tag: u64, why: &str, body: Vec<u8>) {
        tracing::warn!(
            why,
            "an unreadable report of progress goes to the dead letters"
        );
        let aside = message::of_unreadable(&self.shared.names, names::PROGRESS_QUEUE, why, body);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move { publisher::publish(&shared, &[aside]).await });
        self.intake.reject(tag);
    }
}

#[async_trait]
impl ProgressInbox for RabbitInbox {
    async fn next(&mut self, most: usize) -> Vec<(u64, ProgressReport)> {
        loop {
            let messages = self.intake.next(most).await;
            let mut reports = Vec::with_capacity(messages.len());
            for read in messages {
                match message::to_report(&read.body) {
                    Ok(report) => reports.push((read.tag, report)),
                    Err(why) => self.set_aside(read.tag, &why, read.body),
                }
            }
            if !reports.is_empty() || most == 0 {
                return reports;
            }
        }
    }

    async fn answered(&mut self, tags: &[u64]) {
        self.intake.answered(tags);
    }
}
