//! The consumer of a lane.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::contract::broker::{Bells, Delivery};

use super::{connection::Shared, consumer::Intake, message, topology::check_lane};
use crate::names;

#[derive(Debug)]
pub(super) struct RabbitBells {
    queue: String,
    /// `None` for a queue of tasks that can have no lane.
    intake: Option<Intake>,
}

impl RabbitBells {
    pub(super) fn new(shared: &Arc<Shared>, queue: &str) -> Self {
        let can_be = check_lane(queue).map_err(|why| tracing::error!("{why}"));
        if can_be.is_ok() {
            shared.want(queue);
        }
        let intake = can_be
            .ok()
            .map(|()| Intake::new(shared, names::lane(queue), Some(queue.to_owned())));
        Self {
            queue: queue.to_owned(),
            intake,
        }
    }
}

#[async_trait]
impl Bells for RabbitBells {
    async fn next(&mut self, most: usize) -> Vec<Delivery> {
        let Some(intake) = &mut self.intake else {
            return std::future::pending().await;
        };
        loop {
            let messages = intake.next(most).await;
            let mut deliveries = Vec::with_capacity(messages.len());
            for read in messages {
                match message::to_bell(&read.body) {
                    Ok(bell) => deliveries.push(Delivery {
                        bell,
                        tag: read.tag,
                    }),
                    Err(why) => {
                        tracing::warn!(
                            queue = self.queue,
                            why,
                            "an unreadable bell goes to the dead letters"
                        );
                        intake.reject(read.tag);
                    }
                }
            }
            if !deliveries.is_empty() || most == 0 {
                return deliveries;
            }
        }
    }

    async fn answered(&mut self, tags: &[u64]) {
        if let Some(intake) = &mut self.intake {
            intake.answered(tags);
        }
    }

    async fn pause(&mut self) {
        if let Some(intake) = &mut self.intake {
            intake.pause();
        }
    }
}
