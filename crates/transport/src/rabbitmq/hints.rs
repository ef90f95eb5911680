//! The consumer of the hints of one task queue.

use std::{future::pending, sync::Arc};

use async_trait::async_trait;
use longhaul_domain::contract::broker::{Delivery, HintConsumer};

use super::{connection::Shared, message, queue_reader::QueueReader, topology::check_queue_name};
use crate::names;

#[derive(Debug)]
pub(super) struct RabbitHintConsumer {
    queue: String,
    /// `None` for a task queue whose name the broker uses for something else.
    reader: Option<QueueReader>,
}

impl RabbitHintConsumer {
    pub(super) fn new(shared: &Arc<Shared>, queue: &str) -> Self {
        let reader = match check_queue_name(queue) {
            Ok(()) => {
                shared.remember_queue(queue);
                let name = names::hint_queue(queue);
                Some(QueueReader::new(shared, name, Some(queue.to_owned())))
            }
            Err(why) => {
                tracing::error!(queue, "broker: {why}");
                None
            }
        };

        Self {
            queue: queue.to_owned(),
            reader,
        }
    }
}

#[async_trait]
impl HintConsumer for RabbitHintConsumer {
    async fn next(&mut self, most: usize) -> Vec<Delivery> {
        let Some(reader) = &mut self.reader else {
            return pending().await;
        };

        loop {
            let messages = reader.next(most).await;
            let mut deliveries = Vec::with_capacity(messages.len());
            for read in messages {
                match message::to_hint(&read.body) {
                    Ok(hint) => deliveries.push(Delivery {
                        hint,
                        tag: read.tag,
                    }),
                    Err(why) => {
                        tracing::warn!(
                            queue = self.queue,
                            why,
                            "broker: unreadable hint; moving it to the dead letters"
                        );
                        reader.reject(read.tag);
                    }
                }
            }

            if !deliveries.is_empty() || most == 0 {
                return deliveries;
            }
        }
    }

    async fn answered(&mut self, tags: &[u64]) {
        if let Some(reader) = &mut self.reader {
            reader.answered(tags);
        }
    }

    async fn pause(&mut self) {
        if let Some(reader) = &mut self.reader {
            reader.pause();
        }
    }
}
