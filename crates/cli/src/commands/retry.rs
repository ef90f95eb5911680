//! `longhaul retry`: runs failed tasks again.

use longhaul_api::{RetryScope, client::TaskId};

use crate::client::{Exit, ServerOptions, print_refusal, task_id};

/// Options of `longhaul retry`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  longhaul retry ID\n  longhaul retry ID --failed-children\n  \
    longhaul list --status dead-letter --json | jq -r '.items[].taskId' | xargs longhaul retry"
)]
pub struct Retry {
    /// Tasks that failed, are dead letters, or were cancelled. They continue from their last
    /// checkpoint.
    #[arg(required = true, value_parser = task_id)]
    ids: Vec<TaskId>,
    /// Retry only their failed children.
    #[arg(long)]
    failed_children: bool,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(retry: Retry) -> anyhow::Result<Exit> {
    let client = retry.server.client()?;
    let screen = retry.server.screen();
    let scope = if retry.failed_children {
        RetryScope::FailedChildren
    } else {
        RetryScope::Task
    };
    let mut exit = Exit::Done;

    for id in retry.ids {
        match client.retry(id, scope).await {
            Ok(answer) if retry.server.json => screen.line(answer.text)?,
            Ok(answer) => screen.line(format_args!("{id} {}", answer.value.status.as_str()))?,
            Err(error) => exit = print_refusal(id, error)?,
        }
    }

    Ok(exit)
}
