//! Tasks, attempts and log lines as tables.

use comfy_table::{Cell, Table};
use longhaul_api::{AttemptView, LogView, Moment, TaskSummary};

use super::{ProgressSummary, Screen, age, clean, cut, percent};

/// The most characters of a type, a queue or a message in a row.
const CELL: usize = 48;

pub(crate) fn tasks(screen: Screen, items: &[TaskSummary], now: Moment) -> Table {
    let mut table = screen.table(&[
        "ID", "TYPE", "STATUS", "QUEUE", "PRI", "TRY", "PROGRESS", "AGE", "NOTE",
    ]);

    for task in items {
        table.add_row([
            Cell::new(task.task_id),
            Cell::new(cut(&task.task_type, CELL)),
            screen.status(task.status),
            Cell::new(cut(&task.queue, CELL)),
            Cell::new(task.priority),
            Cell::new(format!("{}/{}", task.attempt, task.max_attempts)),
            Cell::new(percent(&ProgressSummary::of(task.progress.as_ref()))),
            Cell::new(age(task.created_at, now)),
            screen.dim(cut(&note(task, now), CELL)),
        ]);
    }

    table
}

/// What matters most about a task after its status.
fn note(task: &TaskSummary, now: Moment) -> String {
    if let Some(next) = task.next_attempt_at.filter(|next| *next > now) {
        return match &task.error_message {
            Some(error) => format!("again {}: {error}", age(next, now)),
            None => format!("due {}", age(next, now)),
        };
    }

    if task.children.open > 0 {
        return format!(
            "{} of {} children open",
            task.children.open, task.children.total
        );
    }

    if let Some(error) = &task.error_message
        && task.status.is_ended()
    {
        return error.clone();
    }

    let progress = ProgressSummary::of(task.progress.as_ref());
    progress.message.unwrap_or_default()
}

pub(crate) fn attempts(screen: Screen, items: &[AttemptView], now: Moment) -> Table {
    let mut table = screen.table(&["ATTEMPT", "OUTCOME", "HOST", "STARTED", "ENDED", "ERROR"]);
    for one in items {
        let ago = |moment: Option<Moment>| match moment {
            Some(moment) => format!("{} ago", age(moment, now)),
            None => String::new(),
        };
        let error = match &one.error {
            Some(error) => format!("{}: {}", error.class, error.message),
            None => String::new(),
        };

        table.add_row([
            Cell::new(one.attempt),
            Cell::new(one.outcome.as_str()),
            Cell::new(clean(one.host.as_deref().unwrap_or(""))),
            Cell::new(ago(one.started_at)),
            Cell::new(ago(one.ended_at)),
            Cell::new(clean(&error)),
        ]);
    }

    table
}

pub(crate) fn logs(screen: Screen, items: &[LogView]) -> Table {
    let mut table = screen.table(&["TIME", "ATTEMPT", "LEVEL", "MESSAGE"]);
    for line in items {
        table.add_row([
            screen.dim(line.logged_at),
            Cell::new(line.attempt),
            Cell::new(line.level.as_str()),
            Cell::new(clean(&line.message)),
        ]);
    }

    table
}

/// Names and their values; empty values are left out.
pub(crate) fn facts<'a>(
    screen: Screen,
    rows: impl IntoIterator<Item = (&'a str, String)>,
) -> Table {
    let mut table = screen.table(&[]);
    for (name, value) in rows.into_iter().filter(|(_, value)| !value.is_empty()) {
        table.add_row([screen.dim(name), Cell::new(value)]);
    }

    table
}
