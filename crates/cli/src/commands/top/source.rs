//! What `top` reads and changes: the server and the keyboard.

use std::time::Duration;

use longhaul_api::{
    Moment,
    client::{Client, ClientError},
};
use ratatui::crossterm::event::{self, Event};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Update, keys::Action, model::Snapshot};

/// The most running tasks to show: one page.
const RUNNING: &str = "200";
/// Key presses that wait to be handled. More are read once there is room.
const KEYS: usize = 64;

/// Fetches a snapshot. Parts that the caller may not see are empty, and `refusal` names them.
pub(super) async fn fetch(client: &Client) -> Result<Snapshot, ClientError> {
    let filters = [
        ("status", "RUNNING".to_owned()),
        ("size", RUNNING.to_owned()),
    ];
    let (running, queues, nodes) =
        tokio::join!(client.list(&filters), client.queues(), client.nodes());
    let mut refusal = None;
    let queues = allowed(queues.map(|answer| answer.value.items), &mut refusal)?;
    let nodes = allowed(nodes.map(|answer| answer.value.items), &mut refusal)?;

    Ok(Snapshot {
        running: running?.value.items,
        queues,
        nodes,
        refusal,
        now: Moment::now(),
    })
}

fn allowed<T>(
    answer: Result<Vec<T>, ClientError>,
    refusal: &mut Option<String>,
) -> Result<Vec<T>, ClientError> {
    match answer {
        Err(error) if error.code() == Some("forbidden") => {
            *refusal = Some(format!("queues and nodes are not shown: {error}"));
            Ok(Vec::new())
        }
        other => other,
    }
}

/// Fetches snapshots until the receiver is gone.
pub(super) async fn keep_fetching(client: Client, every: Duration, updates: mpsc::Sender<Update>) {
    let mut last = Instant::now();

    loop {
        tokio::time::sleep(every).await;
        let update = match fetch(&client).await {
            Ok(snapshot) => {
                let seconds = last.elapsed().as_secs_f64();
                last = Instant::now();
                Update::Snapshot(Box::new(snapshot), seconds)
            }
            Err(error) => Update::Failed(error.to_string()),
        };
        if updates.send(update).await.is_err() {
            return;
        }
    }
}

/// Performs an action and reports its result.
pub(super) async fn perform(client: Client, action: Action, updates: mpsc::Sender<Update>) {
    let (result, note) = match action {
        Action::Pause(queue) => (
            client.pause_queue(&queue).await,
            format!("{queue} is paused"),
        ),
        Action::Resume(queue) => (
            client.resume_queue(&queue).await,
            format!("{queue} is open"),
        ),
        Action::Cancel(id) => (client.cancel(id).await, format!("{id} is cancelled")),
        Action::None | Action::Leave => return,
    };

    let note = match result {
        Ok(()) => note,
        Err(error) => error.to_string(),
    };
    // The receiver is gone if the screen has been left.
    let _ = updates.send(Update::Note(note)).await;
}

/// Reads the keyboard, until the receiver is gone or the program ends.
pub(super) fn keyboard() -> mpsc::Receiver<Event> {
    let (sender, events) = mpsc::channel(KEYS);
    // Reading blocks, so it has its own thread.
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });

    events
}
