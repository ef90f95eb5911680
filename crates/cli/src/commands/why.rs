//! `longhaul why`: why a task is not running yet.

use longhaul_api::client::TaskId;
use serde_json::Value;

use crate::client::{self, Ending, ServerOptions, clean, task_id};

/// What `why` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  longhaul why ID\n  longhaul why ID --json | jq -r .reason")]
pub struct Why {
    /// The task.
    #[arg(value_parser = task_id)]
    id: TaskId,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(why: Why) -> anyhow::Result<Ending> {
    let (client, screen) = (why.server.client()?, why.server.screen());
    let answer = client.why(why.id).await?;
    if why.server.json {
        screen.line(&answer.text)?;
        return Ok(Ending::Done);
    }
    screen.line(clean(&answer.value.sentence))?;
    let told = |value: &Value| value.as_str().map_or_else(|| value.to_string(), clean);
    let rows = answer
        .value
        .facts
        .iter()
        .map(|(name, value)| (name.as_str(), told(value)));
    if !answer.value.facts.is_empty() {
        screen.show(client::facts(screen, rows))?;
    }
    Ok(Ending::Done)
}
