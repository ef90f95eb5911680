//! The nodes.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use longhaul_api::{Moment, NodeView, Page};
use longhaul_domain::NodeRecord;

use crate::{api::Api, openapi::Doc, problem::ApiError, reply};

pub(crate) fn list_doc() -> Doc {
    Doc::new("listNodes", "Lists the processes that run tasks").page::<NodeView>("All nodes")
}

pub(crate) async fn list(State(api): State<Arc<Api>>) -> Result<Response, ApiError> {
    let nodes = api.engine.leases().list_nodes().await?;
    let items: Vec<NodeView> = nodes.into_iter().map(view).collect();

    Ok(reply::ok(&Page {
        items,
        next_cursor: None,
    }))
}

fn view(node: NodeRecord) -> NodeView {
    let serves = node.serves;
    NodeView {
        node_id: node.id,
        name: node.name,
        host: node.host,
        started_at: node.started_at.into(),
        heartbeat_at: node.heartbeat_at.into(),
        lost_at: node.lost_at.map(Moment),
        queues: serves.as_ref().map(|serves| serves.queues.clone()),
        slots: serves.as_ref().map(|serves| serves.slots),
        task_types: serves.map(|serves| serves.task_types),
    }
}
