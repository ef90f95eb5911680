//! `longhaul retry`: runs again what ended badly.

use longhaul_api::{RetryScope, client::TaskId};

use crate::client::{Ending, ServerOptions, task_id, tell_about};

/// What `retry` can be told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  longhaul retry ID\n  longhaul retry ID --failed-children\n  \
    longhaul list --status dead-letter --json | jq -r '.items[].taskId' | xargs longhaul retry"
)]
pub struct Retry {
    /// Tasks that failed, are dead letters, or were cancelled. They go on from their last checkpoint.
    #[arg(required = true, value_parser = task_id)]
    ids: Vec<TaskId>,
    /// Only those of their children that failed.
    #[arg(long)]
    failed_children: bool,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(retry: Retry) -> anyhow::Result<Ending> {
    let (client, screen) = (retry.server.client()?, retry.server.screen());
    let scope = if retry.failed_children {
        RetryScope::FailedChildren
    } else {
        RetryScope::Task
    };
    let mut ending = Ending::Done;
    for id in retry.ids {
        match client.retry(id, scope).await {
            Ok(answer) if retry.server.json => screen.line(answer.text)?,
            Ok(answer) => screen.line(format_args!("{id} {}", answer.value.status.as_str()))?,
            Err(error) => ending = tell_about(id, error)?,
        }
    }
    Ok(ending)
}
