//! Live news over a WebSocket: a client subscribes and unsubscribes by message.
//!
//! One task serves one socket and queues nothing but what one look brought. A client that is too slow for the news is
//! closed and told so; one that does not read at all holds up nobody but itself, and is let go.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use longhaul_api::socket::{SocketAction, SocketMessage, SocketRequest};
use longhaul_domain::{
    StoreError, TaskId,
    contract::{event_bus::Heard, store::Access},
};
use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    api::Api,
    live::{Follower, HEARTBEAT, Told, unheard::next_look},
};

/// One message of a client, in bytes. A subscription has about a hundred.
pub(crate) const MESSAGE_BYTES: usize = 64 * 1024;
/// Tasks that one socket follows by name. Whoever wants more follows all.
pub(crate) const SUBSCRIPTIONS: usize = 100;
/// How long a client may leave a message unread.
const SLOW: Duration = Duration::from_secs(10);
/// How long a client may be silent: three pings without an answer.
const SILENT: Duration = Duration::from_secs(45);
/// Try again later: the client comes back and is shown the state.
const TOO_SLOW: u16 = 1013;

/// Why a socket is closed.
struct Closing {
    code: u16,
    reason: &'static str,
}

const fn closing(code: u16, reason: &'static str) -> Closing {
    Closing { code, reason }
}

/// Serves the socket until either side leaves, or the caller is no longer who may be here.
pub(crate) async fn serve(
    mut socket: WebSocket,
    api: Arc<Api>,
    access: Access,
    until_refused: impl Future<Output = ()> + Send,
) {
    let follower = Follower::start(Arc::clone(&api), access, None);
    let mut guest = Box::new(Guest {
        api,
        follower,
        heard_at: Instant::now(),
    });
    let Some(Closing { code, reason }) = guest.converse(&mut socket, Box::pin(until_refused)).await
    else {
        return;
    };
    let frame = CloseFrame {
        code,
        reason: Utf8Bytes::from_static(reason),
    };
    // Whoever does not read does not hear it either.
    let _ = tokio::time::timeout(
        Duration::from_secs(1),
        socket.send(Message::Close(Some(frame))),
    )
    .await;
}

struct Guest {
    api: Arc<Api>,
    follower: Follower,
    heard_at: Instant,
}

impl Guest {
    /// Answers why the socket is to be closed; nothing when the client has gone.
    async fn converse(
        &mut self,
        socket: &mut WebSocket,
        mut until_refused: impl Future<Output = ()> + Unpin,
    ) -> Option<Closing> {
        let mut beat = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let api = Arc::clone(&self.api);
        let mut look_at = next_look(&api).await;
        loop {
            while let Some(told) = self.follower.take() {
                if let Err(end) = say(socket, &message_of(told)).await {
                    return end;
                }
            }
            let step = tokio::select! {
                () = api.closing.cancelled() => return Some(closing(close_code::AWAY, "the server stops")),
                () = &mut until_refused => return Some(closing(close_code::POLICY, "the token is no longer good")),
                message = socket.recv() => self.listen(socket, message?.ok()?).await,
                heard = self.follower.hear() => self.digest(heard?).await,
                () = tokio::time::sleep_until(look_at) => {
                    pass(self.follower.look_again().await);
                    look_at = next_look(&api).await;
                    Ok(())
                }
                _ = beat.tick() => self.beat(socket).await,
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn digest(&mut self, heard: Heard) -> Result<(), Option<Closing>> {
        if let Heard::Missed(_) = heard {
            return Err(Some(closing(
                TOO_SLOW,
                "too slow: news were missed; connect and subscribe again",
            )));
        }
        pass(self.follower.digest(heard).await);
        Ok(())
    }

    async fn beat(&mut self, socket: &mut WebSocket) -> Result<(), Option<Closing>> {
        if self.heard_at.elapsed() > SILENT {
            return Err(Some(closing(close_code::POLICY, "no answer to pings")));
        }
        send(socket, Message::Ping(axum::body::Bytes::new())).await
    }

    async fn listen(
        &mut self,
        socket: &mut WebSocket,
        message: Message,
    ) -> Result<(), Option<Closing>> {
        self.heard_at = Instant::now();
        let text = match message {
            Message::Text(text) => text,
            Message::Binary(_) => {
                return Err(Some(closing(
                    close_code::UNSUPPORTED,
                    "messages are JSON text",
                )));
            }
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
            Message::Close(_) => return Err(None),
        };
        if text.len() > MESSAGE_BYTES {
            return Err(Some(closing(
                close_code::SIZE,
                "a message has at most 64 KiB",
            )));
        }
        let answer = match serde_json::from_str::<SocketRequest>(&text) {
            Ok(request) => self.follow(request).await,
            Err(error) => refusal("invalid_message", error.to_string()),
        };
        say(socket, &answer).await
    }

    async fn follow(&mut self, request: SocketRequest) -> SocketMessage {
        let SocketRequest {
            action,
            task_id,
            all,
        } = request;
        let done = match (action, task_id, all) {
            (SocketAction::Subscribe, Some(id), false) => return self.subscribe(id).await,
            (SocketAction::Subscribe, None, true) => self.follower.follow_all().await,
            (SocketAction::Unsubscribe, Some(id), false) => {
                self.follower.leave_task(id);
                Ok(())
            }
            (SocketAction::Unsubscribe, None, true) => {
                self.follower.leave_all();
                Ok(())
            }
            (SocketAction::Subscribe | SocketAction::Unsubscribe, _, _) => {
                return refusal(
                    "invalid_message",
                    "say either \"taskId\" or \"all\": true".to_owned(),
                );
            }
        };
        match (done, action) {
            (Ok(()), SocketAction::Subscribe) => SocketMessage::Subscribed { task_id, all },
            (Ok(()), SocketAction::Unsubscribe) => SocketMessage::Unsubscribed { task_id, all },
            (Err(error), _) => refused(&error),
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
        StoreError::NotFound => "there is no such task".to_owned(),
        StoreError::Invalid(_)
        | StoreError::IdempotencyMismatch
        | StoreError::Refused(_)
        | StoreError::Unavailable(_)
        | StoreError::NodeLost
        | StoreError::SchemaTooNew { .. }
        | StoreError::Internal(_) => "the store could not be asked; try again".to_owned(),
    };
    refusal(error.code(), detail)
}

/// News are not the truth: who could not look now looks later.
fn pass(looked: Result<(), StoreError>) {
    if let Err(error) = looked {
        tracing::debug!(%error, "a socket could not look and goes on");
    }
}

fn message_of(told: Told) -> SocketMessage {
    match told {
        Told::State(task) => SocketMessage::State { task },
        Told::States(page) => SocketMessage::states(page),
        Told::News { news, .. } => SocketMessage::Event(news),
    }
}

async fn say(socket: &mut WebSocket, message: &SocketMessage) -> Result<(), Option<Closing>> {
    match serde_json::to_string(message) {
        Ok(text) => send(socket, Message::Text(text.into())).await,
        Err(error) => {
            tracing::error!(%error, "news could not be written");
            Ok(())
        }
    }
}

async fn send(socket: &mut WebSocket, message: Message) -> Result<(), Option<Closing>> {
    match tokio::time::timeout(SLOW, socket.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(None),
        Err(_) => Err(Some(closing(TOO_SLOW, "too slow: messages stay unread"))),
    }
}
