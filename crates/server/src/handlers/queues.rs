//! Queues: their tasks by status, pause and resume.

use std::sync::Arc;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use longhaul_api::{Moment, Page, QueueView};
use longhaul_domain::QueueName;
use longhaul_engine::queries::queue_counts::QueueCounts;

use crate::{
    api::{Api, PathText},
    openapi::Doc,
    problem::ApiError,
    reply,
};

pub(crate) fn list_doc() -> Doc {
    Doc::new("listQueues", "Lists every queue with its tasks by status")
        .page::<QueueView>("All queues")
}

pub(crate) async fn list(State(api): State<Arc<Api>>) -> Result<Response, ApiError> {
    let view = |QueueCounts { queue, tasks }: QueueCounts| QueueView {
        paused: queue.paused_at.is_some(),
        paused_at: queue.paused_at.map(Moment),
        name: queue.name.to_string(),
        tasks,
    };

    let queue_counts = api.engine.queue_counts().await?;
    let items: Vec<QueueView> = queue_counts.into_iter().map(view).collect();
    Ok(reply::ok(&Page {
        items,
        next_cursor: None,
    }))
}

pub(crate) fn pause_doc() -> Doc {
    Doc::new(
        "pauseQueue",
        "Stops claiming tasks of a queue; running tasks continue",
    )
    .empty(204, "The queue is paused")
    .problems(&[404, 422])
}

pub(crate) async fn pause(
    State(api): State<Arc<Api>>,
    PathText(name): PathText,
) -> Result<Response, ApiError> {
    let queue = known_queue(&api, &name).await?;
    api.engine.pause_queue(&queue).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(crate) fn resume_doc() -> Doc {
    Doc::new("resumeQueue", "Claims tasks of a queue again")
        .empty(204, "The queue is not paused")
        .problems(&[404, 422])
}

pub(crate) async fn resume(
    State(api): State<Arc<Api>>,
    PathText(name): PathText,
) -> Result<Response, ApiError> {
    let queue = known_queue(&api, &name).await?;
    api.engine.resume_queue(&queue).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Refuses a name that no queue has: pausing it would make one.
async fn known_queue(api: &Api, name: &str) -> Result<QueueName, ApiError> {
    let queue = QueueName::parse(name)?;
    if api.engine.knows_queue(&queue).await? {
        Ok(queue)
    } else {
        Err(ApiError::NoQueue)
    }
}
