//! The upgrade to a WebSocket.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    response::Response,
};
use longhaul_api::{TaskEventView, TaskSummary, socket::SocketMessage, socket::SocketRequest};

use crate::{
    api::Api,
    identity::Caller,
    listener::Connection,
    openapi::Doc,
    problem::ApiError,
    socket::{self, MESSAGE_BYTES},
    stream_limits::StreamSlot,
    tokens::PresentedToken,
};

pub(crate) fn connect_doc() -> Doc {
    let summary =
        "Live updates over a WebSocket: send SocketRequest messages, receive SocketMessage ones";
    Doc::new("connectSocket", summary)
        .refers_to::<SocketRequest>()
        .refers_to::<SocketMessage>()
        .refers_to::<TaskEventView>()
        .refers_to::<TaskSummary>()
        .empty(101, "The connection is now a WebSocket")
        .problems(&[400])
}

pub(crate) async fn connect(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Extension(connection): Extension<Connection>,
    token: Option<Extension<PresentedToken>>,
    Extension(slot): Extension<StreamSlot>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|_| ApiError::NotWebSocket)?;

    // Twice the bound, so that a message that is slightly too large gets a close reason. Small
    // buffers, because there may be thousands of sockets.
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

        // The connection and the stream count as open until the socket has ended.
        tokio::select! {
            () = socket::serve(socket, api, caller.access(), until_refused) => {}
            () = connection.aborted() => {}
        }
        drop((connection, slot));
    }))
}
