//! `longhaul get`: everything about one task.

use longhaul_api::{
    Moment, TaskView,
    client::{Client, TaskId},
};

use crate::client::{
    self, Exit, ProgressSummary, Screen, ServerOptions, age, attempt_of, clean, pretty,
    progress_text, short_duration, task_id,
};

/// Options of `longhaul get`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  longhaul get ID\n  longhaul get ID --attempts\n  \
    longhaul get ID --json | jq .result"
)]
pub struct Get {
    /// The task.
    #[arg(value_parser = task_id)]
    id: TaskId,
    #[command(flatten)]
    detail: Detail,
    /// Continue after an earlier page of log lines or children, with the cursor that it printed.
    #[arg(long, conflicts_with = "attempts")]
    cursor: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

/// Shown instead of the record.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Detail {
    /// Show every attempt with its outcome.
    #[arg(long)]
    attempts: bool,
    /// Show the log lines stored with the task.
    #[arg(long)]
    logs: bool,
    /// Show its children.
    #[arg(long)]
    children: bool,
}

pub async fn run(get: Get) -> anyhow::Result<Exit> {
    let client = get.server.client()?;
    let screen = get.server.screen();
    let id = get.id;
    let json = get.server.json;
    let now = Moment::now();
    let cursor = get.cursor.map(|cursor| ("cursor", cursor));
    let page: Vec<(&str, String)> = cursor.into_iter().collect();

    let (text, table, next) = if get.detail.attempts {
        let answer = client.attempts(id).await?;
        let table = client::attempts(screen, &answer.value.items, now);
        (answer.text, table, answer.value.next_cursor)
    } else if get.detail.logs {
        let answer = client.logs(id, &page).await?;
        let table = client::logs(screen, &answer.value.items);
        (answer.text, table, answer.value.next_cursor)
    } else if get.detail.children {
        let answer = client.children(id, &page).await?;
        let table = client::tasks(screen, &answer.value.items, now);
        (answer.text, table, answer.value.next_cursor)
    } else {
        anyhow::ensure!(page.is_empty(), "--cursor is for --logs and --children");
        return record(&client, screen, id, json).await;
    };

    if json {
        screen.line(text)?;
        return Ok(Exit::Done);
    }

    screen.show(table)?;
    if let Some(cursor) = next {
        screen.more(&cursor)?;
    }

    Ok(Exit::Done)
}

async fn record(client: &Client, screen: Screen, id: TaskId, json: bool) -> anyhow::Result<Exit> {
    let answer = client.get(id).await?;
    if json {
        screen.line(&answer.text)?;
    } else {
        show(screen, &answer.value, Moment::now())?;
    }

    Ok(Exit::Done)
}

fn show(screen: Screen, task: &TaskView, now: Moment) -> anyhow::Result<()> {
    screen.show(client::facts(screen, facts(task, now)))?;

    screen.line(format_args!("\nparameters\n{}", pretty(&task.parameters)))?;
    if let Some(result) = &task.result {
        screen.line(format_args!("\nresult\n{}", pretty(result)))?;
    }

    Ok(())
}

/// The fields of the record as they are shown, empty if the task does not have them.
fn facts(task: &TaskView, now: Moment) -> Vec<(&'static str, String)> {
    let summary = &task.summary;
    let progress = ProgressSummary::of(summary.progress.as_ref());
    let queue = clean(&summary.queue);
    let parent = summary.parent_task_id.map(|id| id.to_string());
    let timeout = task.timeout.map(|time| short_duration(time.as_millis()));
    let when = |moment: Option<Moment>| moment.map(|moment| when(moment, now)).unwrap_or_default();
    let text = |value: &Option<String>| value.as_deref().map(clean).unwrap_or_default();

    vec![
        ("id", summary.task_id.to_string()),
        ("type", clean(&summary.task_type)),
        ("status", summary.status.as_str().to_owned()),
        ("progress", progress_text(&progress)),
        ("attempt", attempt_of(summary)),
        ("queue", format!("{queue}, priority {}", summary.priority)),
        ("tier", text(&summary.tier)),
        ("owner", clean(&summary.user_id)),
        ("task key", text(&summary.task_key)),
        ("correlation", text(&summary.correlation_id)),
        ("parent", parent.unwrap_or_default()),
        ("children", children(task)),
        ("created", when(Some(summary.created_at))),
        ("next attempt", when(summary.next_attempt_at)),
        ("started", when(summary.started_at)),
        ("finished", when(summary.finished_at)),
        ("took", took(task)),
        ("host", text(&task.host)),
        ("timeout", timeout.unwrap_or_default()),
        ("error", error(task)),
    ]
}

/// `2026-03-01T08:30:00Z (5m ago)`
fn when(moment: Moment, now: Moment) -> String {
    let age = age(moment, now);
    if moment > now {
        format!("{moment} ({age})")
    } else {
        format!("{moment} ({age} ago)")
    }
}

fn children(task: &TaskView) -> String {
    let counts = task.summary.children;
    if counts.total == 0 {
        return String::new();
    }

    let by_status = [
        (counts.open, "open"),
        (counts.completed, "completed"),
        (counts.with_errors, "with errors"),
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
    ];
    let shown: Vec<String> = by_status
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, status)| format!("{count} {status}"))
        .collect();

    format!("{}: {}", counts.total, shown.join(", "))
}

fn took(task: &TaskView) -> String {
    let (Some(started), Some(finished)) = (task.summary.started_at, task.summary.finished_at)
    else {
        return String::new();
    };

    short_duration(finished.0.micros_since(started.0) / 1_000)
}

fn error(task: &TaskView) -> String {
    match &task.error {
        Some(error) => format!("{}: {}", error.class, clean(&error.message)),
        None => String::new(),
    }
}
