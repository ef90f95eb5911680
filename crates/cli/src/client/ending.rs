//! How a command ends, as a number for scripts and a sentence for people.

use std::io::Write as _;
use std::process::ExitCode;

use longhaul_api::client::{ClientError, Status};

use super::clean;

/// How a command ended that did what it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Done,
    /// Part of it failed, and people have been told.
    Told,
    TaskFailed,
    TaskCancelled,
    TaskCompletedWithErrors,
}

impl Ending {
    /// How the end of a task shows. One that goes on is not an end.
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
            Self::Told => 1,
            // 2 is what clap ends with.
            Self::TaskFailed => 3,
            Self::TaskCancelled => 4,
            Self::TaskCompletedWithErrors => 5,
        }
    }
}

/// The exit status of a command, after its error, if there is one, has been told.
pub fn finish(result: anyhow::Result<Ending>) -> ExitCode {
    match result {
        Ok(ending) => ExitCode::from(ending.code()),
        // Whoever read the output has seen enough, as `head` does.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&error);
            ExitCode::FAILURE
        }
    }
}

/// Says what went wrong, and what to do where that is known.
fn tell(error: &anyhow::Error) {
    let mut text = format!("error: {}", causes(error));
    if let Some(client) = error.downcast_ref::<ClientError>() {
        if let ClientError::Unreachable { .. } = client {
            text +=
                "\nstart one with `longhaul dev`, or say where it is with --url or LONGHAUL_URL";
        }
        if client
            .problem()
            .is_some_and(|problem| problem.status == 401)
        {
            text += "\ngive a token with --token or LONGHAUL_TOKEN; longhaul token create makes one where the store is";
        }
    }
    // A refusal may quote what somebody else wrote.
    let text = text.lines().map(clean).collect::<Vec<_>>().join("\n");
    // Nobody is left to be told when this fails.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// An error with its causes. Some say their cause themselves, and once is enough.
pub fn causes(error: &anyhow::Error) -> String {
    error
        .chain()
        .map(ToString::to_string)
        .reduce(joined)
        .unwrap_or_default()
}

fn joined(text: String, cause: String) -> String {
    if text.contains(&cause) {
        text
    } else {
        format!("{text}: {cause}")
    }
}

/// One of several calls has failed. The rest is tried, too, unless nobody answers at all.
pub(crate) fn tell_about(id: impl std::fmt::Display, error: ClientError) -> anyhow::Result<Ending> {
    if let ClientError::Refused(_) = error {
        tell(&anyhow::anyhow!("{id}: {error}"));
        return Ok(Ending::Told);
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
    fn a_cause_is_told_once() {
        let error = anyhow::anyhow!("it is away")
            .context("the store: it is away")
            .context("it cannot start");
        assert_eq!(causes(&error), "it cannot start: the store: it is away");
    }
}
