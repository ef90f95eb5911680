//! Shared by all commands that call a server: its address, the caller, and how results are shown.

mod exit;
mod options;
mod screen;
mod tables;
mod text;

pub(crate) use exit::print_refusal;
pub use exit::{Exit, causes, finish};
pub use options::ServerOptions;
pub(crate) use options::task_id;
pub(crate) use screen::Screen;
pub(crate) use tables::{attempts, facts, logs, tasks};
pub(crate) use text::{
    ProgressSummary, age, attempt_of, clean, cut, percent, pretty, progress_text, short_duration,
};

/// The exit statuses, for the help of commands that watch a task. `docs/cli.md` has the same table.
pub(crate) const EXIT_CODES: &str = "Exit status:
  0  done, and for --watch the task completed
  1  it failed: no server, or the server refused
  2  the command line is wrong
  3  the task failed or is a dead letter
  4  the task was cancelled
  5  the task completed with errors";
