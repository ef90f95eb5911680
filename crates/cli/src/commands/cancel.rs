//! `longhaul cancel`: ends tasks and all below them.

use longhaul_api::client::TaskId;

use crate::client::{Ending, ServerOptions, task_id, tell_about};

/// What `cancel` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  longhaul cancel ID\n  \
    longhaul list --status queued --json | jq -r '.items[].taskId' | xargs longhaul cancel")]
pub struct Cancel {
    /// The tasks. One that has ended is left alone.
    #[arg(required = true, value_parser = task_id)]
    ids: Vec<TaskId>,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(cancel: Cancel) -> anyhow::Result<Ending> {
    let (client, screen) = (cancel.server.client()?, cancel.server.screen());
    let mut ending = Ending::Done;
    for id in cancel.ids {
        match client.cancel(id).await {
            // The API has no JSON for this.
            Ok(()) if cancel.server.json => {}
            Ok(()) => screen.line(format_args!("{id} cancelled"))?,
            Err(error) => ending = tell_about(id, error)?,
        }
    }
    Ok(ending)
}
