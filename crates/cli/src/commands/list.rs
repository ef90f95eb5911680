//! `longhaul list`: tasks that match.

use longhaul_api::{
    Moment,
    client::{Status, TaskId},
};

use crate::client::{self, Ending, ServerOptions, task_id};

/// What `list` can be told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  longhaul list --status running,retrying\n  \
    longhaul list --type sample.fail --status dead-letter --size 200\n  \
    longhaul list --json | jq -r '.items[].taskId'"
)]
pub struct List {
    /// One or more statuses, separated by commas: queued, running, retrying, waiting, completed,
    /// completed-with-errors, failed, cancelled, dead-letter.
    #[arg(long, value_delimiter = ',', value_parser = status)]
    status: Vec<Status>,
    /// One or more types, separated by commas.
    #[arg(long = "type")]
    task_type: Option<String>,
    /// One or more queues, separated by commas.
    #[arg(long)]
    queue: Option<String>,
    /// The business id that a task was submitted with.
    #[arg(long)]
    task_key: Option<String>,
    /// Children of this task.
    #[arg(long, value_parser = task_id)]
    parent: Option<TaskId>,
    /// Tasks of this user, for administrators.
    #[arg(long)]
    owner: Option<String>,
    /// Created at this moment or later, like 2026-03-01T08:30:00Z.
    #[arg(long)]
    created_after: Option<Moment>,
    /// Created before this moment.
    #[arg(long)]
    created_before: Option<Moment>,
    /// Due at this moment or later.
    #[arg(long)]
    due_after: Option<Moment>,
    /// Due before this moment.
    #[arg(long)]
    due_before: Option<Moment>,
    /// The oldest first.
    #[arg(long)]
    oldest_first: bool,
    /// How many, 200 at most.
    #[arg(long, default_value_t = 50)]
    size: u32,
    /// Go on from a page before, by what it ended with.
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(list: List) -> anyhow::Result<Ending> {
    let (client, screen) = (list.server.client()?, list.server.screen());
    let answer = client.list(&filters(&list)).await?;
    if list.server.json {
        screen.line(&answer.text)?;
        return Ok(Ending::Done);
    }
    if answer.value.items.is_empty() {
        screen.hint("No task matches.")?;
        return Ok(Ending::Done);
    }
    screen.show(client::tasks(screen, &answer.value.items, Moment::now()))?;
    if let Some(cursor) = answer.value.next_cursor {
        screen.more(&cursor)?;
    }
    Ok(Ending::Done)
}

fn filters(list: &List) -> Vec<(&'static str, String)> {
    let statuses: Vec<&str> = list.status.iter().map(|status| status.as_str()).collect();
    let moment = |moment: Option<Moment>| moment.map(|moment| moment.to_string());
    let given = [
        ("status", (!statuses.is_empty()).then(|| statuses.join(","))),
        ("taskType", list.task_type.clone()),
        ("queue", list.queue.clone()),
        ("taskKey", list.task_key.clone()),
        ("parentTaskId", list.parent.map(|id| id.to_string())),
        ("userId", list.owner.clone()),
        ("createdAfter", moment(list.created_after)),
        ("createdBefore", moment(list.created_before)),
        ("dueAfter", moment(list.due_after)),
        ("dueBefore", moment(list.due_before)),
        ("sort", list.oldest_first.then(|| "createdAt".to_owned())),
        ("size", Some(list.size.to_string())),
        ("cursor", list.cursor.clone()),
    ];
    given
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// A status as people write it: in any case, with hyphens or underscores.
fn status(text: &str) -> Result<Status, String> {
    let plain = text.trim().to_uppercase().replace('-', "_");
    let known = || {
        Status::ALL
            .map(|status| status.as_str().to_lowercase().replace('_', "-"))
            .join(", ")
    };
    Status::ALL
        .into_iter()
        .find(|status| status.as_str() == plain)
        .ok_or_else(|| format!("{text:?} is no status; allowed: {}", known()))
}
