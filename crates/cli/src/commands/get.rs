//! `longhaul get`: everything about one task.

use longhaul_api::{
    Moment, TaskView,
    client::{Client, TaskId},
};

use crate::client::{
    self, Ending, Screen, ServerOptions, Shown, age, attempt_of, clean, pretty, progress_text,
    short_duration, task_id,
};

/// What `get` can be told.
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
    part: Part,
    /// Go on from a page of log lines or children before, by what it ended with.
    #[arg(long, conflicts_with = "attempts")]
    cursor: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

/// What is shown instead of the record.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Part {
    /// Every attempt with its outcome.
    #[arg(long)]
    attempts: bool,
    /// The log lines that are kept with it.
    #[arg(long)]
    logs: bool,
    /// Its children.
    #[arg(long)]
    children: bool,
}

pub async fn run(get: Get) -> anyhow::Result<Ending> {
    let (client, screen) = (get.server.client()?, get.server.screen());
    let (id, json, now) = (get.id, get.server.json, Moment::now());
    let page: Vec<(&str, String)> = get
        .cursor
        .into_iter()
        .map(|cursor| ("cursor", cursor))
        .collect();
    let (text, table, next) = if get.part.attempts {
        let answer = client.attempts(id).await?;
        (
            answer.text,
            client::attempts(screen, &answer.value.items, now),
            answer.value.next_cursor,
        )
    } else if get.part.logs {
        let answer = client.logs(id, &page).await?;
        (
            answer.text,
            client::log_lines(screen, &answer.value.items),
            answer.value.next_cursor,
        )
    } else if get.part.children {
        let answer = client.children(id, &page).await?;
        (
            answer.text,
            client::tasks(screen, &answer.value.items, now),
            answer.value.next_cursor,
        )
    } else {
        anyhow::ensure!(page.is_empty(), "--cursor is for --logs and --children");
        return record(&client, screen, id, json).await;
    };
    if json {
        screen.line(text)?;
        return Ok(Ending::Done);
    }
    screen.show(table)?;
    if let Some(cursor) = next {
        screen.more(&cursor)?;
    }
    Ok(Ending::Done)
}

async fn record(client: &Client, screen: Screen, id: TaskId, json: bool) -> anyhow::Result<Ending> {
    let answer = client.get(id).await?;
    if json {
        screen.line(&answer.text)?;
    } else {
        show(screen, &answer.value, Moment::now())?;
    }
    Ok(Ending::Done)
}

fn show(screen: Screen, task: &TaskView, now: Moment) -> anyhow::Result<()> {
    let summary = &task.summary;
    let ago = |moment: Moment| format!("{moment} ({})", told_age(moment, now));
    let when = |moment: Option<Moment>| moment.map(ago).unwrap_or_default();
    let text = |value: &Option<String>| value.as_deref().map(clean).unwrap_or_default();
    let table = client::facts(
        screen,
        [
            ("id", summary.task_id.to_string()),
            ("type", clean(&summary.task_type)),
            ("status", summary.status.as_str().to_owned()),
            (
                "progress",
                progress_text(&Shown::of(summary.progress.as_ref())),
            ),
            ("attempt", attempt_of(summary)),
            (
                "queue",
                format!("{}, priority {}", clean(&summary.queue), summary.priority),
            ),
            ("tier", text(&summary.tier)),
            ("owner", clean(&summary.user_id)),
            ("task key", text(&summary.task_key)),
            ("correlation", text(&summary.correlation_id)),
            (
                "parent",
                summary
                    .parent_task_id
                    .map(|id| id.to_string())
                    .unwrap_or_default(),
            ),
            ("children", children(task)),
            ("created", ago(summary.created_at)),
            ("next attempt", when(summary.next_attempt_at)),
            ("started", when(summary.started_at)),
            ("finished", when(summary.finished_at)),
            ("took", took(task)),
            ("host", text(&task.host)),
            (
                "timeout",
                task.timeout
                    .map(|timeout| short_duration(timeout.as_millis()))
                    .unwrap_or_default(),
            ),
            ("error", error(task)),
        ],
    );
    screen.show(table)?;
    screen.line(format_args!("\nparameters\n{}", pretty(&task.parameters)))?;
    if let Some(result) = &task.result {
        screen.line(format_args!("\nresult\n{}", pretty(result)))?;
    }
    Ok(())
}

fn told_age(moment: Moment, now: Moment) -> String {
    let told = age(moment, now);
    if moment > now {
        told
    } else {
        format!("{told} ago")
    }
}

fn children(task: &TaskView) -> String {
    let counts = task.summary.children;
    if counts.total == 0 {
        return String::new();
    }
    let parts = [
        (counts.open, "open"),
        (counts.completed, "completed"),
        (counts.with_errors, "with errors"),
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
    ];
    let told: Vec<String> = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    format!("{}: {}", counts.total, told.join(", "))
}

fn took(task: &TaskView) -> String {
    let (Some(started), Some(finished)) = (task.summary.started_at, task.summary.finished_at)
    else {
        return String::new();
    };
    short_duration(finished.0.micros_since(started.0) / 1_000)
}

fn error(task: &TaskView) -> String {
    let told = task
        .error
        .as_ref()
        .map(|error| format!("{}: {}", error.class, clean(&error.message)));
    told.unwrap_or_default()
}
