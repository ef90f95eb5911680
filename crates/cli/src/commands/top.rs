//! `longhaul top`: queues, running tasks, nodes and throughput on the whole screen.
//!
//! `model` holds what is shown, `keys` turns key presses into actions, `view` draws, `source` calls
//! the server, and the loop here connects them. However it ends, it restores the terminal.

pub mod keys;
pub mod model;
mod source;
pub mod view;

use std::io::IsTerminal as _;
use std::time::Duration;

use longhaul_api::client::Client;
use ratatui::DefaultTerminal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::client::{Exit, ServerOptions};
use keys::Action;
use model::Model;

/// Updates that wait to be shown: one snapshot and the results of a few actions.
const UPDATES: usize = 16;

/// Options of `longhaul top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Keys:
  q          leave
  Tab        choose between queues and running tasks
  up, down   choose a row
  p          pause or resume the chosen queue
  c          cancel the chosen task
  /          show only tasks whose type, queue, user or id contains a text; Esc shows all

Example:
  longhaul top --url http://127.0.0.1:7080 --every 500ms")]
pub struct Top {
    /// How often to ask the server: 500ms, 1s, 5s.
    #[arg(long, default_value = "1s")]
    every: longhaul_api::WireDuration,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(top: Top) -> anyhow::Result<Exit> {
    anyhow::ensure!(
        std::io::stdout().is_terminal(),
        "top needs a terminal; `longhaul list` is for scripts"
    );
    let client = top.server.client()?;
    let every = top.every.0.max(Duration::from_millis(100));
    let has_colours = top.server.screen().has_colours;

    // The first snapshot comes before the screen changes, so that an error is printed as usual.
    let first = source::fetch(&client).await?;
    let mut model = Model::new(client.url(), has_colours);
    model.apply(first, 0.0);

    let mut terminal = ratatui::try_init()?;
    let ended = show(&mut terminal, &client, model, every).await;
    ratatui::restore();
    ended.map(|()| Exit::Done)
}

/// A change of the model that does not come from the keyboard.
enum Update {
    /// A snapshot, and the seconds since the one before.
    Snapshot(Box<model::Snapshot>, f64),
    /// The result of an action.
    Note(String),
    /// Why no snapshot could be fetched.
    Failed(String),
}

async fn show(
    terminal: &mut DefaultTerminal,
    client: &Client,
    mut model: Model,
    every: Duration,
) -> anyhow::Result<()> {
    let (sender, mut updates) = mpsc::channel(UPDATES);
    let mut keys = source::keyboard();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    // Fetching runs beside the loop, so that keys work while a server is slow.
    let fetching = tokio::spawn(source::keep_fetching(client.clone(), every, sender.clone()));

    loop {
        terminal.draw(|frame| view::draw(frame, &model))?;

        // All branches are channels and signals: dropping the others loses nothing.
        let action = tokio::select! {
            event = keys.recv() => match event {
                Some(event) => keys::press(&mut model, &event),
                None => Action::Leave,
            },
            update = updates.recv() => {
                match update {
                    Some(Update::Snapshot(snapshot, seconds)) => model.apply(*snapshot, seconds),
                    Some(Update::Note(text)) => model.note = text,
                    Some(Update::Failed(text)) => model.failure = text,
                    None => {}
                }
                Action::None
            }
            _ = terminate.recv() => Action::Leave,
            _ = hang_up.recv() => Action::Leave,
        };

        match action {
            Action::None => {}
            Action::Leave => break,
            action @ (Action::Pause(_) | Action::Resume(_) | Action::Cancel(_)) => {
                // The call may take long: its result comes back as an update.
                tokio::spawn(source::perform(client.clone(), action, sender.clone()));
            }
        }
    }

    fetching.abort();
    Ok(())
}
