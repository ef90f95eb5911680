//! `longhaul why`: why a task is not running yet.

use longhaul_api::client::TaskId;
use serde_json::Value;

use crate::client::{self, Exit, ServerOptions, clean, task_id};

/// Options of `longhaul why`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  longhaul why ID\n  longhaul why ID --json | jq -r .reason")]
pub struct Why {
    /// The task.
    #[arg(value_parser = task_id)]
    id: TaskId,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(why: Why) -> anyhow::Result<Exit> {
    let client = why.server.client()?;
    let screen = why.server.screen();
    let answer = client.why(why.id).await?;
    if why.server.json {
        screen.line(&answer.text)?;
        return Ok(Exit::Done);
    }

    screen.line(clean(&answer.value.sentence))?;
    let facts = &answer.value.facts;
    if !facts.is_empty() {
        let rows = facts
            .iter()
            .map(|(name, value)| (name.as_str(), text(value)));
        screen.show(client::facts(screen, rows))?;
    }

    Ok(Exit::Done)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), clean)
}
