//! `longhaul top`: queues, running tasks, nodes and throughput on the whole screen.
//!
//! The model is what is known, `keys` turns what is typed into what is wanted, `view` draws, and this loop does the rest.
//! However it ends, the terminal is as it was before.

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

use crate::client::{Ending, ServerOptions};
use keys::Wish;
use model::Model;

/// Results that wait to be shown: one look and a few answers to keys.
const WAITING: usize = 16;

/// What `top` can be told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Keys:\n  q          leave\n  Tab        choose between queues and running tasks\n  \
    up, down   choose a row\n  p          pause or resume the chosen queue\n  c          cancel the chosen task\n  \
    /          show only tasks whose type, queue or id holds a word; Esc shows all\n\n\
    Example:\n  longhaul top --url http://127.0.0.1:7080 --every 500ms"
)]
pub struct Top {
    /// How often it looks: 500ms, 1s, 5s.
    #[arg(long, default_value = "1s")]
    every: longhaul_api::WireDuration,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(top: Top) -> anyhow::Result<Ending> {
    anyhow::ensure!(
        std::io::stdout().is_terminal(),
        "top needs a terminal; `longhaul list` is for scripts"
    );
    let (client, every) = (
        top.server.client()?,
        top.every.0.max(Duration::from_millis(100)),
    );
    let has_colours = top.server.screen().has_colours;
    // A server that is not there is told on the screen of before.
    let first = source::look(&client).await?;
    let mut model = Model::new(client.url(), has_colours);
    model.see(first, 0.0);
    let mut terminal = ratatui::try_init()?;
    let ended = show(&mut terminal, &client, model, every).await;
    ratatui::restore();
    ended.map(|()| Ending::Done)
}

/// What arrives from elsewhere.
enum News {
    Looked(Box<model::Snapshot>, f64),
    /// The answer to a key.
    Said(String),
    /// A look that came to nothing.
    Failed(String),
}

async fn show(
    terminal: &mut DefaultTerminal,
    client: &Client,
    mut model: Model,
    every: Duration,
) -> anyhow::Result<()> {
    let (tell, mut heard) = mpsc::channel(WAITING);
    let mut typed = source::keyboard();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let looking = tokio::spawn(source::keep_looking(client.clone(), every, tell.clone()));
    loop {
        terminal.draw(|frame| view::draw(frame, &model))?;
        let wish = tokio::select! {
            event = typed.recv() => match event {
                Some(event) => keys::typed(&mut model, &event),
                None => Wish::Leave,
            },
            news = heard.recv() => {
                match news {
                    Some(News::Looked(snapshot, seconds)) => model.see(*snapshot, seconds),
                    Some(News::Said(text)) => model.note = text,
                    Some(News::Failed(text)) => model.trouble = text,
                    None => {}
                }
                Wish::Nothing
            }
            _ = terminate.recv() => Wish::Leave,
            _ = hang_up.recv() => Wish::Leave,
        };
        match wish {
            Wish::Nothing => {}
            Wish::Leave => break,
            wish @ (Wish::Pause(_) | Wish::Resume(_) | Wish::Cancel(_)) => {
                tokio::spawn(source::fulfil(client.clone(), wish, tell.clone()));
            }
        }
    }
    looking.abort();
    Ok(())
}
