//! How a watched task is shown: a bar, lines, or JSON lines.

use std::io::Write as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use longhaul_api::{
    TaskEventView, TaskSummary, TaskView,
    client::{ClientError, Status},
};
use serde::Serialize;

use crate::client::{
    ProgressSummary, Screen, attempt_of, clean, pretty, progress_text, short_duration,
};

/// How often the bar is redrawn, so that its clock moves.
const TICK: Duration = Duration::from_millis(200);

/// The newest known state of the task.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WatchedTask {
    pub(super) status: Status,
    attempt: u32,
    version: u64,
    progress: ProgressSummary,
    error: Option<String>,
    open_children: u32,
}

impl Default for WatchedTask {
    fn default() -> Self {
        Self {
            status: Status::Queued,
            attempt: 0,
            version: 0,
            progress: ProgressSummary::default(),
            error: None,
            open_children: 0,
        }
    }
}

impl WatchedTask {
    pub(super) fn is_ended(&self) -> bool {
        self.status.is_ended()
    }

    pub(super) fn replace(&mut self, task: &TaskSummary) {
        *self = Self {
            status: task.status,
            attempt: task.attempt,
            version: task.version,
            progress: ProgressSummary::of(task.progress.as_ref()),
            error: task.error_message.clone(),
            open_children: task.children.open,
        };
    }

    /// Whether the task has changed since. Progress that is not in the store yet does not change
    /// the version.
    pub(super) fn is_older_than(&self, task: &TaskSummary) -> bool {
        let progress = ProgressSummary::of(task.progress.as_ref());
        task.version > self.version || (task.version == self.version && progress != self.progress)
    }

    /// Applies an event. Returns whether it was new.
    pub(super) fn update(&mut self, event: &TaskEventView) -> bool {
        if event.version < self.version {
            return false;
        }

        if event.attempt != self.attempt {
            self.progress = ProgressSummary::default();
        }
        if event.progress.is_some() {
            self.progress = ProgressSummary::of_value(event.progress.as_ref());
        }

        self.status = event.status;
        self.attempt = event.attempt;
        self.version = event.version;
        self.error.clone_from(&event.error);
        true
    }

    /// The error or the open children where those matter more than the progress, else `progress`.
    fn detail(&self, progress: String) -> String {
        match &self.error {
            Some(error) if self.status != Status::Running => clean(error),
            _ if self.status == Status::Waiting && self.open_children > 0 => {
                format!("{} children open", self.open_children)
            }
            _ => progress,
        }
    }
}

/// Where and how it is shown.
#[derive(Debug)]
pub(super) struct View {
    screen: Screen,
    json: bool,
    bar: Option<ProgressBar>,
}

impl View {
    pub(super) fn new(screen: Screen, json: bool) -> Self {
        let bar = (screen.is_terminal && !json).then(|| bar(screen.has_colours));
        Self { screen, json, bar }
    }

    /// `event` is what the server sent, for JSON lines.
    pub(super) fn show(&self, task: &WatchedTask, event: &impl Serialize) -> anyhow::Result<()> {
        if self.json {
            self.screen.line(serde_json::to_string(event)?)?;
        } else if let Some(bar) = &self.bar {
            update_bar(bar, task);
        } else if !task.is_ended() {
            let status = task.status.as_str();
            let detail = task.detail(progress_text(&task.progress));
            let line = format!("{status} attempt {} {detail}", task.attempt);
            self.screen.line(line.trim_end())?;
        }

        Ok(())
    }

    /// The connection broke and will be opened again. Scripts read it on standard error.
    pub(super) fn lost(&self, error: &ClientError) -> anyhow::Result<()> {
        let text = format!("{error}; trying again");
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => writeln!(std::io::stderr(), "{text}")?,
        }

        Ok(())
    }

    pub(super) fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// How the task ended. As JSON, the last event has said it.
    pub(super) fn end(&self, task: &TaskView) -> anyhow::Result<()> {
        if self.json {
            return Ok(());
        }

        let summary = &task.summary;
        let mut text = summary.status.as_str().to_owned();
        if let (Some(started), Some(finished)) = (summary.started_at, summary.finished_at) {
            let ms = finished.0.micros_since(started.0) / 1_000;
            text += &format!(" after {}", short_duration(ms));
        }
        text += &format!(", attempt {}", attempt_of(summary));
        self.screen.line(text)?;

        if let Some(error) = &task.error
            && summary.status != Status::Completed
        {
            let message = clean(&error.message);
            self.screen
                .line(format_args!("{}: {message}", error.class))?;
        }
        if let Some(result) = &task.result {
            self.screen.line(pretty(result))?;
        }

        Ok(())
    }
}

fn bar(has_colours: bool) -> ProgressBar {
    let template = if has_colours {
        "{prefix:.bold} [{bar:30.cyan/dim}] {percent:>3}% {elapsed} {wide_msg}"
    } else {
        "{prefix} [{bar:30}] {percent:>3}% {elapsed} {wide_msg}"
    };
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(1_000).with_style(style.progress_chars("━╸─"));

    bar.enable_steady_tick(TICK);
    bar
}

fn update_bar(bar: &ProgressBar, task: &WatchedTask) {
    let percent = task.progress.percent.unwrap_or(0.0).clamp(0.0, 100.0);
    // In tenths, so that long tasks visibly move. The value is clamped, so the cast is exact.
    bar.set_position((percent * 10.0) as u64);
    bar.set_prefix(task.status.as_str());

    let message = task.progress.message.as_deref().map(clean);
    let detail = task.detail(message.unwrap_or_default());
    if task.attempt > 1 {
        bar.set_message(format!("attempt {} {detail}", task.attempt));
    } else {
        bar.set_message(detail);
    }
}
