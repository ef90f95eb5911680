//! Log lines that are stored with a task, for the people who look at it.
//!
//! They are few and short. A task's output is in the stream log, and what a handler logs for its
//! operators goes to the log of the process.

use serde::{Deserialize, Serialize};

use crate::{bounds, task::Lease, time::Timestamp};

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// For information.
    Info,
    /// A person should look at it.
    Warn,
    /// Something went wrong.
    Error,
}

impl LogLevel {
    pub const ALL: [Self; 3] = [Self::Info, Self::Warn, Self::Error];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

/// A line as an attempt writes it. The store adds time and number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    pub lease: Lease,
    pub level: LogLevel,
    pub message: String,
}

impl LogLine {
    /// The message as every store keeps it: cut to its bound, and without control characters that
    /// would disturb a terminal or a page. Line breaks and tabs stay.
    pub fn storable_message(&self) -> String {
        let shown = |c: char| {
            if c.is_control() && !matches!(c, '\n' | '\t' | '\0') {
                '\u{fffd}'
            } else {
                c
            }
        };

        bounds::cut(self.message.chars().map(shown), bounds::LOG_BYTES)
    }
}

/// A stored line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogEntry {
    /// Grows from line to line of a task, not by one. A reader continues after it.
    pub number: u64,
    /// The attempt that wrote it.
    pub attempt: u32,
    /// How much it matters.
    pub level: LogLevel,
    /// What it says.
    pub message: String,
    /// When the store took it.
    pub logged_at: Timestamp,
}

/// A page of a task's lines, the oldest first, and where the next one starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    pub items: Vec<LogEntry>,
    /// The number of the last line if the page is full.
    pub next: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{LeaseToken, TaskId};
    use uuid::Uuid;

    fn stored(message: &str) -> String {
        let lease = Lease {
            task_id: TaskId(Uuid::nil()),
            attempt: 1,
            token: LeaseToken(Uuid::nil()),
        };

        LogLine {
            lease,
            level: LogLevel::Info,
            message: message.to_owned(),
        }
        .storable_message()
    }

    #[test]
    fn every_level_is_parsed_from_its_own_spelling() {
        for level in LogLevel::ALL {
            assert_eq!(LogLevel::parse(level.as_str()), Some(level));
        }
        assert_eq!(LogLevel::parse("INFO"), None);
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        assert_eq!(
            stored(&"é".repeat(bounds::LOG_BYTES)),
            "é".repeat(bounds::LOG_BYTES / 2)
        );
        assert_eq!(
            stored(&("x".to_owned() + &"é".repeat(bounds::LOG_BYTES))).len(),
            bounds::LOG_BYTES - 1
        );
    }

    #[test]
    fn control_characters_are_replaced_and_nul_is_dropped() {
        assert_eq!(
            stored("a\0b\tc\nd\u{1b}[31m\r\u{85}"),
            "ab\tc\nd\u{fffd}[31m\u{fffd}\u{fffd}"
        );
        assert_eq!(stored("\0"), "");
    }
}
