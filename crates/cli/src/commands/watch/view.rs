//! How a watched task is shown: a bar, lines, or JSON lines.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use longhaul_api::{
    TaskNews, TaskSummary, TaskView,
    client::{ClientError, Status},
};
use serde::Serialize;

use crate::client::{Screen, Shown, attempt_of, clean, pretty, progress_text, short_duration};

/// The bar is drawn again this often, so that its clock moves.
const TICK: Duration = Duration::from_millis(200);

/// The newest that is known of the task.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Standing {
    pub(super) status: Status,
    attempt: u32,
    version: u64,
    progress: Shown,
    error: Option<String>,
    open_children: u32,
}

impl Default for Standing {
    fn default() -> Self {
        let (status, progress) = (Status::Queued, Shown::default());
        Self {
            status,
            attempt: 0,
            version: 0,
            progress,
            error: None,
            open_children: 0,
        }
    }
}

impl Standing {
    pub(super) fn is_ended(&self) -> bool {
        self.status.is_ended()
    }

    pub(super) fn see(&mut self, task: &TaskSummary) {
        *self = Self {
            status: task.status,
            attempt: task.attempt,
            version: task.version,
            progress: Shown::of(task.progress.as_ref()),
            error: task.error_message.clone(),
            open_children: task.children.open,
        };
    }

    /// Whether the task has moved on since. Progress that is not in the store yet leaves the version alone.
    pub(super) fn is_before(&self, task: &TaskSummary) -> bool {
        let is_newer =
            task.version == self.version && Shown::of(task.progress.as_ref()) != self.progress;
        task.version > self.version || is_newer
    }

    /// Whether this was news.
    pub(super) fn hear(&mut self, news: &TaskNews) -> bool {
        if news.version < self.version {
            return false;
        }
        if news.attempt != self.attempt {
            self.progress = Shown::default();
        }
        if news.progress.is_some() {
            self.progress = Shown::of_value(news.progress.as_ref());
        }
        (self.status, self.attempt, self.version) = (news.status, news.attempt, news.version);
        self.error.clone_from(&news.error);
        true
    }

    /// What there is to say besides: `progress` is that of the task, told as the caller wants.
    fn words(&self, progress: String) -> String {
        let mut text = progress;
        if let Some(error) = self
            .error
            .as_ref()
            .filter(|_| self.status != Status::Running)
        {
            text = clean(error);
        } else if self.status == Status::Waiting && self.open_children > 0 {
            text = format!("{} children open", self.open_children);
        }
        text
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

    pub(super) fn show(&self, standing: &Standing, word: &impl Serialize) -> anyhow::Result<()> {
        if self.json {
            self.screen.line(serde_json::to_string(word)?)?;
        } else if let Some(bar) = &self.bar {
            let percent = standing.progress.percent.unwrap_or(0.0).clamp(0.0, 100.0);
            // In tenths, so that long tasks are seen to move. It was clamped: the cast cannot be wrong.
            bar.set_position((percent * 10.0) as u64);
            bar.set_prefix(standing.status.as_str());
            let again = if standing.attempt > 1 {
                format!("attempt {} ", standing.attempt)
            } else {
                String::new()
            };
            let message = standing
                .progress
                .message
                .as_deref()
                .map(clean)
                .unwrap_or_default();
            bar.set_message(again + &standing.words(message));
        } else if !standing.is_ended() {
            let (status, attempt) = (standing.status.as_str(), standing.attempt);
            self.screen.line(
                format!(
                    "{status} attempt {attempt} {}",
                    standing.words(progress_text(&standing.progress))
                )
                .trim_end(),
            )?;
        }
        Ok(())
    }

    /// The connection is gone and will be opened again. Scripts hear it on standard error.
    pub(super) fn lost(&self, error: &ClientError) -> anyhow::Result<()> {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{error}; trying again"));
        } else {
            use std::io::Write as _;
            writeln!(std::io::stderr(), "{error}; trying again")?;
        }
        Ok(())
    }

    pub(super) fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// How it ended. JSON has said it all.
    pub(super) fn end(&self, task: &TaskView) -> anyhow::Result<()> {
        if self.json {
            return Ok(());
        }
        let summary = &task.summary;
        let mut text = summary.status.as_str().to_owned();
        if let (Some(started), Some(finished)) = (summary.started_at, summary.finished_at) {
            text += &format!(
                " after {}",
                short_duration(finished.0.micros_since(started.0) / 1_000)
            );
        }
        text += &format!(", attempt {}", attempt_of(summary));
        self.screen.line(text)?;
        if let Some(error) = &task.error
            && summary.status != Status::Completed
        {
            self.screen
                .line(format_args!("{}: {}", error.class, clean(&error.message)))?;
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
