//! What the commands share that talk to a server: where it is, who calls, and how things are shown to people.

mod ending;
mod options;
mod screen;
mod tables;
mod words;

pub(crate) use ending::tell_about;
pub use ending::{Ending, causes, finish};
pub use options::ServerOptions;
pub(crate) use options::task_id;
pub(crate) use screen::Screen;
pub(crate) use tables::{attempts, facts, log_lines, tasks};
pub(crate) use words::{
    Shown, age, attempt_of, clean, cut, percent, pretty, progress_text, short_duration,
};

/// How a command ends, said in the help of those where it matters. `docs/cli.md` has the same table.
pub(crate) const EXIT_CODES: &str = "Exit status:\n  0  done, and for --watch the task completed\n  \
    1  it failed: no server, or the server refused\n  2  the command line is wrong\n  \
    3  the task failed or is a dead letter\n  4  the task was cancelled\n  5  the task completed with errors";
