//! How a command ends: an exit status for scripts and a sentence for people.

use std::io::Write as _;
use std::process::ExitCode;

use longhaul_api::client::{ClientError, Status};

use super::clean;

/// How a command ended that could do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done,
    /// One of several calls failed, and its error has been printed.
    PartlyFailed,
    TaskFailed,
    TaskCancelled,
    TaskCompletedWithErrors,
}

impl Exit {
    /// The exit for the last status of a watched task.
    pub(crate) const fn of(status: Status) -> Self {
        match status {
            Status::Completed
            | Status::Queued
            | Status::Running
            | Status::Retrying
            | Status::Waiting => Self::Done,
            Status::CompletedWithErrors => Self::TaskCompletedWithErrors,
            Status::Failed | Status::DeadLetter => Self::TaskFailed,
            Status::Cancelled => Self::TaskCancelled,
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::PartlyFailed => 1,
            // clap uses 2 for a wrong command line.
            Self::TaskFailed => 3,
            Self::TaskCancelled => 4,
            Self::TaskCompletedWithErrors => 5,
        }
    }
}

/// The exit status of a command. Prints its error, if there is one.
pub fn finish(result: anyhow::Result<Exit>) -> ExitCode {
    match result {
        Ok(exit) => ExitCode::from(exit.code()),
        // The reader closed the pipe because it had enough, as `head` does.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print(&error);
            ExitCode::FAILURE
        }
    }
}

/// Prints what went wrong, and what to do about it where that is known.
fn print(error: &anyhow::Error) {
    let mut text = format!("error: {}", causes(error));

    if let Some(client) = error.downcast_ref::<ClientError>() {
        let problem = client.problem();
        if let ClientError::Unreachable { .. } = client {
            text += "\nstart one with `longhaul dev`, or give its address with --url or \
                     LONGHAUL_URL";
        }
        if problem.is_some_and(|problem| problem.status == 401) {
            text += "\npass a token with --token or LONGHAUL_TOKEN; longhaul token create makes \
                     one where the store is";
        }
    }

    // An error may quote text from elsewhere: it must not steer the terminal.
    let text = text.lines().map(clean).collect::<Vec<_>>().join("\n");
    // There is no other place to report that standard error is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// An error with its causes. A cause that is already part of the text is not repeated.
pub fn causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();

    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }

    text
}

/// Prints that the server refused one of several calls. Any other error ends the command: the
/// remaining calls would fail as well.
pub(crate) fn print_refusal(
    id: impl std::fmt::Display,
    error: ClientError,
) -> anyhow::Result<Exit> {
    if let ClientError::Refused(_) = error {
        print(&anyhow::anyhow!("{id}: {error}"));
        return Ok(Exit::PartlyFailed);
    }

    Err(error.into())
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_printed_once() {
        let error = anyhow::anyhow!("it is away")
            .context("the store: it is away")
            .context("it cannot start");
        assert_eq!(causes(&error), "it cannot start: the store: it is away");
    }
}
