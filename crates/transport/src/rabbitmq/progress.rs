//! The consumer of reported progress.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::contract::broker::{ProgressInbox, ProgressReport};

use super::{connection::Shared, message, publisher, queue_reader::QueueReader};
use crate::names;

#[derive(Debug)]
pub(super) struct RabbitInbox {
    shared: Arc<Shared>,
    reader: QueueReader,
}

impl RabbitInbox {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let reader = QueueReader::new(shared, names::PROGRESS_QUEUE.to_owned(), None);
        Self {
            shared: Arc::clone(shared),
            reader,
        }
    }

    /// Publishes a report to the dead letters. The queue has no dead letter exchange, because it
    /// would also get the reports that are dropped when the queue is full.
    fn set_aside(&mut self, tag: u64, why: &str, body: Vec<u8>) {
        tracing::warn!(
            why,
            "broker: unreadable report of progress; moving it to the dead letters"
        );
        let letter = message::of_unreadable(&self.shared.names, names::PROGRESS_QUEUE, why, body);
        let shared = Arc::clone(&self.shared);

        // Publishing waits for a confirm, and the reports behind this one should not.
        tokio::spawn(async move { publisher::publish(&shared, &[letter]).await });
        self.reader.reject(tag);
    }
}

#[async_trait]
impl ProgressInbox for RabbitInbox {
    async fn next(&mut self, most: usize) -> Vec<(u64, ProgressReport)> {
        loop {
            let messages = self.reader.next(most).await;
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
        self.reader.answered(tags);
    }
}
