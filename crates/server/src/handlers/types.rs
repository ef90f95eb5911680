//! The registered task types.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use longhaul_api::{Page, TypeView, WireDuration};
use longhaul_engine::catalog::TypeDefinition;

use crate::{api::Api, openapi::Doc, reply};

pub(crate) fn list_doc() -> Doc {
    Doc::new("listTypes", "Lists the task types with their schemas").page::<TypeView>("All types")
}

pub(crate) async fn list(State(api): State<Arc<Api>>) -> Response {
    let items: Vec<TypeView> = api.catalog.types().map(view).collect();
    reply::ok(&Page {
        items,
        next_cursor: None,
    })
}

fn view(definition: &TypeDefinition) -> TypeView {
    TypeView {
        task_type: definition.name.clone(),
        parameters: definition.params_schema.clone(),
        result: definition.result_schema.clone(),
        progress: definition.progress_schema.clone(),
        queue: definition.queue.clone(),
        expected_duration: definition.expected_duration.map(WireDuration),
        max_attempts: definition.max_attempts,
        timeout: definition.timeout.map(WireDuration),
        cancellable: definition.is_cancellable,
    }
}
