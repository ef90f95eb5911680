//! `longhaul cancel`: cancels tasks and all their descendants.

use longhaul_api::client::TaskId;

use crate::client::{Exit, ServerOptions, print_refusal, task_id};

/// Options of `longhaul cancel`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  longhaul cancel ID\n  \
    longhaul list --status queued --json | jq -r '.items[].taskId' | xargs longhaul cancel")]
pub struct Cancel {
    /// The tasks. One that has ended stays as it is.
    #[arg(required = true, value_parser = task_id)]
    ids: Vec<TaskId>,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(cancel: Cancel) -> anyhow::Result<Exit> {
    let client = cancel.server.client()?;
    let screen = cancel.server.screen();
    let mut exit = Exit::Done;

    for id in cancel.ids {
        match client.cancel(id).await {
            // The API answers without a body.
            Ok(()) if cancel.server.json => {}
            Ok(()) => screen.line(format_args!("{id} cancelled"))?,
            Err(error) => exit = print_refusal(id, error)?,
        }
    }

    Ok(exit)
}
