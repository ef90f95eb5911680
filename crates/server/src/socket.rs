//! Live updates over a WebSocket. A client subscribes and unsubscribes by message.
//!
//! One task serves one socket; the queue is bounded by what one read of the store returns. A client
//! that falls behind is disconnected with a reason. A client that does not read at all blocks only
//! its own socket and times out.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use longhaul_api::{
    object::Object,
    socket::{SocketAction, SocketMessage, SocketRequest},
};
use longhaul_domain::{
    StoreError, TaskId,
    contract::{event_bus::Received, store::Access},
};
use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    api::Api,
    live::{Follower, HEARTBEAT, LiveMessage, missed_changes::next_poll},
};

/// One message of a client, in bytes. A subscription has about a hundred.
pub(crate) const MESSAGE_BYTES: usize = 64 * 1024;
/// Tasks that one socket follows by id. A client that wants more subscribes to all.
const SUBSCRIPTIONS: usize = 100;
/// How long a client may leave a message unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may send nothing: three pings without an answer.
const SILENCE_LIMIT: Duration = Duration::from_secs(45);
/// How long the close frame may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Close code "try again later": the client reconnects and receives the current state.
const TRY_AGAIN_LATER: u16 = 1013;

/// Why the server closes a socket.
struct Closing {
    code: u16,
    reason: &'static str,
}

/// The end of a session. Without a reason the client has disconnected.
type End = Option<Closing>;

const fn closing(code: u16, reason: &'static str) -> End {
    Some(Closing { code, reason })
}

/// Serves the socket until either side disconnects, or `until_refused` completes because the
/// caller's token is no longer valid.
pub(crate) async fn serve(
    mut socket: WebSocket,
    api: Arc<Api>,
    access: Access,
    until_refused: impl Future<Output = ()> + Send,
) {
    let follower = Follower::start(Arc::clone(&api), access, None);
    // Boxed, so that thousands of idle sockets have small tasks.
    let mut session = Box::new(SocketSession {
        api,
        follower,
        last_received: Instant::now(),
    });

    let end = session.run(&mut socket, Box::pin(until_refused)).await;
    if let Some(Closing { code, reason }) = end {
        let reason = Utf8Bytes::from_static(reason);
        let frame = Message::Close(Some(CloseFrame { code, reason }));
        // A client that does not read does not receive the reason either.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, socket.send(frame)).await;
    }
}

struct SocketSession {
    api: Arc<Api>,
    follower: Follower,
    last_received: Instant,
}

impl SocketSession {
    async fn run(
        &mut self,
        socket: &mut WebSocket,
        mut until_refused: impl Future<Output = ()> + Unpin,
    ) -> End {
        let mut heartbeat = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let api = Arc::clone(&self.api);
        let mut poll_at = next_poll(&api).await;

        loop {
            while let Some(update) = self.follower.take() {
                if let Err(end) = send_message(socket, &message_of(update)).await {
                    return end;
                }
            }

            // Only the waiting is cancelled when another branch is ready: each handler runs to its
            // end.
            let step = tokio::select! {
                () = api.closing.cancelled() => {
                    return closing(close_code::AWAY, "the server is shutting down");
                }
                () = &mut until_refused => {
                    return closing(close_code::POLICY, "the token is no longer valid");
                }
                message = socket.recv() => self.receive(socket, message?.ok()?).await,
                received = self.follower.receive() => self.apply(received?).await,
                () = tokio::time::sleep_until(poll_at) => {
                    log_failure(self.follower.poll_changes().await);
                    poll_at = next_poll(&api).await;
                    Ok(())
                }
                _ = heartbeat.tick() => self.ping(socket).await,
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn apply(&mut self, received: Received) -> Result<(), End> {
        if let Received::Missed(_) = received {
            let reason = "too slow: events were missed; connect and subscribe again";
            return Err(closing(TRY_AGAIN_LATER, reason));
        }

        log_failure(self.follower.apply(received).await);
        Ok(())
    }

    async fn ping(&mut self, socket: &mut WebSocket) -> Result<(), End> {
        if self.last_received.elapsed() > SILENCE_LIMIT {
            return Err(closing(close_code::POLICY, "no answer to pings"));
        }
        send(socket, Message::Ping(axum::body::Bytes::new())).await
    }

    async fn receive(&mut self, socket: &mut WebSocket, message: Message) -> Result<(), End> {
        self.last_received = Instant::now();
        let text = match message {
            Message::Text(text) => text,
            Message::Binary(_) => {
                return Err(closing(close_code::UNSUPPORTED, "messages are JSON text"));
            }
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
            Message::Close(_) => return Err(None),
        };

        if text.len() > MESSAGE_BYTES {
            return Err(closing(close_code::SIZE, "a message has at most 64 KiB"));
        }

        let answer = match serde_json::from_str::<Object<SocketRequest>>(&text) {
            Ok(Object(request)) => self.handle(request).await,
            Err(error) => refusal("invalid_message", error.to_string()),
        };
        send_message(socket, &answer).await
    }

    async fn handle(&mut self, request: SocketRequest) -> SocketMessage {
        let SocketRequest {
            action,
            task_id,
            all,
        } = request;

        match (action, task_id, all) {
            (SocketAction::Subscribe, Some(id), false) => self.subscribe(id).await,
            (SocketAction::Subscribe, None, true) => match self.follower.follow_all().await {
                Ok(()) => SocketMessage::Subscribed { task_id, all },
                Err(error) => refused(&error),
            },
            (SocketAction::Unsubscribe, Some(id), false) => {
                self.follower.unfollow_task(id);
                SocketMessage::Unsubscribed { task_id, all }
            }
            (SocketAction::Unsubscribe, None, true) => {
                self.follower.unfollow_all();
                SocketMessage::Unsubscribed { task_id, all }
            }
            (_, None, false) | (_, Some(_), true) => {
                let detail = "set either \"taskId\" or \"all\": true";
                refusal("invalid_message", detail.to_owned())
            }
        }
    }

    async fn subscribe(&mut self, id: TaskId) -> SocketMessage {
        if self.follower.followed_tasks() >= SUBSCRIPTIONS {
            let detail =
                format!("one socket follows at most {SUBSCRIPTIONS} tasks; subscribe to all");
            return refusal("too_many_subscriptions", detail);
        }

        match self.follower.follow_task(id).await {
            Ok(()) => SocketMessage::Subscribed {
                task_id: Some(id),
                all: false,
            },
            Err(error) => refused(&error),
        }
    }
}

fn refusal(code: &str, detail: String) -> SocketMessage {
    SocketMessage::Error {
        code: code.to_owned(),
        detail,
    }
}

fn refused(error: &StoreError) -> SocketMessage {
    let detail = match error {
        StoreError::NotFound => "there is no such task",
        StoreError::Invalid(_)
        | StoreError::IdempotencyMismatch
        | StoreError::Refused(_)
        | StoreError::Unavailable(_)
        | StoreError::NodeLost
        | StoreError::SchemaTooNew { .. }
        | StoreError::Internal(_) => "the store could not be read; try again",
    };

    refusal(error.code(), detail.to_owned())
}

/// A failed read delays updates and loses none: the next poll reads again.
fn log_failure(read: Result<(), StoreError>) {
    if let Err(error) = read {
        tracing::debug!(%error, "socket: reading tasks failed; retrying at the next poll");
    }
}

fn message_of(update: LiveMessage) -> SocketMessage {
    match update {
        LiveMessage::State(task) => SocketMessage::State { task },
        LiveMessage::States(page) => SocketMessage::states(page),
        LiveMessage::Event { event, .. } => SocketMessage::Event(event),
    }
}

async fn send_message(socket: &mut WebSocket, message: &SocketMessage) -> Result<(), End> {
    match serde_json::to_string(message) {
        Ok(text) => send(socket, Message::Text(text.into())).await,
        Err(error) => {
            tracing::error!(%error, "socket: message could not be serialized; dropping it");
            Ok(())
        }
    }
}

async fn send(socket: &mut WebSocket, message: Message) -> Result<(), End> {
    match tokio::time::timeout(WRITE_TIMEOUT, socket.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(None),
        Err(_) => Err(closing(TRY_AGAIN_LATER, "too slow: messages stay unread")),
    }
}
