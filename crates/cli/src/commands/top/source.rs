//! Where news for the screen come from: the server and the keyboard.

use std::time::Duration;

use longhaul_api::{
    Moment,
    client::{Client, ClientError},
};
use ratatui::crossterm::event::{self, Event};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{News, keys::Wish, model::Snapshot};

/// Running tasks that a screen can be asked to show.
const RUNNING: &str = "200";
/// Keys that wait to be handled; more are read when there is room.
const KEYS: usize = 64;

/// One look at everything. What the caller may not see is left out, and told.
pub(super) async fn look(client: &Client) -> Result<Snapshot, ClientError> {
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

/// Looks again and again until nobody listens.
pub(super) async fn keep_looking(client: Client, every: Duration, tell: mpsc::Sender<News>) {
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(every).await;
        let news = match look(&client).await {
            Ok(snapshot) => {
                let seconds = last.elapsed().as_secs_f64();
                last = Instant::now();
                News::Looked(Box::new(snapshot), seconds)
            }
            Err(error) => News::Failed(error.to_string()),
        };
        if tell.send(news).await.is_err() {
            return;
        }
    }
}

/// Does what a key asked for, and says how it went.
pub(super) async fn fulfil(client: Client, wish: Wish, tell: mpsc::Sender<News>) {
    let (done, said) = match wish {
        Wish::Pause(queue) => (
            client.pause_queue(&queue).await,
            format!("{queue} is paused"),
        ),
        Wish::Resume(queue) => (
            client.resume_queue(&queue).await,
            format!("{queue} is open"),
        ),
        Wish::Cancel(id) => (client.cancel(id).await, format!("{id} is cancelled")),
        Wish::Nothing | Wish::Leave => return,
    };
    let said = done.map_or_else(|error| error.to_string(), |()| said);
    // Nobody listens when the screen has been left meanwhile.
    let _ = tell.send(News::Said(said)).await;
}

/// What is typed. The thread ends with the program or with whoever listens.
pub(super) fn keyboard() -> mpsc::Receiver<Event> {
    let (tell, heard) = mpsc::channel(KEYS);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if tell.blocking_send(event).is_err() {
                return;
            }
        }
    });
    heard
}
