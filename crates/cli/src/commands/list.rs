//! `longhaul list`: the tasks that match a filter.

use longhaul_api::{
    Moment,
    client::{Status, TaskId},
};

use crate::client::{self, Exit, ServerOptions, task_id};

/// Options of `longhaul list`.
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
    /// Only children of this task.
    #[arg(long, value_parser = task_id)]
    parent: Option<TaskId>,
    /// Tasks of this user, for administrators.
    #[arg(long)]
    owner: Option<String>,
    /// Created at or after this moment, such as 2026-03-01T08:30:00Z.
    #[arg(long)]
    created_after: Option<Moment>,
    /// Created before this moment.
    #[arg(long)]
    created_before: Option<Moment>,
    /// Due at or after this moment.
    #[arg(long)]
    due_after: Option<Moment>,
    /// Due before this moment.
    #[arg(long)]
    due_before: Option<Moment>,
    /// Show the oldest first.
    #[arg(long)]
    oldest_first: bool,
    /// How many tasks to show, at most 200.
    #[arg(long, default_value_t = 50)]
    size: u32,
    /// Continue after an earlier page, with the cursor that it printed.
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(list: List) -> anyhow::Result<Exit> {
    let client = list.server.client()?;
    let screen = list.server.screen();
    let answer = client.list(&filters(&list)).await?;
    if list.server.json {
        screen.line(&answer.text)?;
        return Ok(Exit::Done);
    }

    if answer.value.items.is_empty() {
        screen.hint("No task matches.")?;
        return Ok(Exit::Done);
    }

    screen.show(client::tasks(screen, &answer.value.items, Moment::now()))?;
    if let Some(cursor) = answer.value.next_cursor {
        screen.more(&cursor)?;
    }

    Ok(Exit::Done)
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

/// Parses a status in any case, with hyphens or underscores.
fn status(text: &str) -> Result<Status, String> {
    let wanted = text.trim().to_uppercase().replace('-', "_");
    let known = Status::ALL
        .into_iter()
        .find(|status| status.as_str() == wanted);

    known.ok_or_else(|| {
        let allowed = Status::ALL.map(|status| status.as_str().to_lowercase().replace('_', "-"));
        format!("{text:?} is not a status; allowed: {}", allowed.join(", "))
    })
}
