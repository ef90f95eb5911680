//! The WebSocket.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    response::Response,
};
use longhaul_api::{TaskNews, TaskSummary, socket::SocketMessage, socket::SocketRequest};

use crate::{
    api::Api,
    identity::Caller,
    listener::Place,
    openapi::Doc,
    problem::ApiError,
    socket::{self, MESSAGE_BYTES},
    tokens::Standing,
};

pub(crate) fn connect_doc() -> Doc {
    let what =
        "Live news over a WebSocket: send SocketRequest messages, receive SocketMessage ones";
    Doc::new("connectSocket", what)
        .refers_to::<SocketRequest>()
        .refers_to::<SocketMessage>()
        .refers_to::<TaskNews>()
        .refers_to::<TaskSummary>()
        .empty(101, "The connection is a WebSocket now")
        .problems(&[400])
}

pub(crate) async fn connect(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Extension(place): Extension<Place>,
    token: Option<Extension<Standing>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|_| ApiError::NotWebSocket)?;
    // Twice the bound: what is a little too large can still be told so. Buffers are small, for there may be thousands.
    let upgrade = upgrade
        .max_message_size(2 * MESSAGE_BYTES)
        .max_frame_size(2 * MESSAGE_BYTES);
    let upgrade = upgrade.read_buffer_size(2 * 1024).write_buffer_size(0);
    Ok(upgrade.on_upgrade(async move |socket| {
        let until_refused = async {
            match token {
                Some(Extension(token)) => token.until_refused().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = socket::serve(socket, api, caller.access(), until_refused) => {}
            () = place.cut() => {}
        }
        drop(place);
    }))
}
