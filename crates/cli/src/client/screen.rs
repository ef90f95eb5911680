//! Where a command writes: a terminal or a file, with colours or without.

use std::io::{IsTerminal as _, Write as _};

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};
use longhaul_api::client::Status;

/// Standard output, and what it can show.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) is_terminal: bool,
    pub(crate) has_colours: bool,
}

impl Screen {
    pub(crate) fn new(no_colour: bool) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        Self {
            is_terminal,
            has_colours: is_terminal && !no_colour,
        }
    }

    /// Prints a line of the command's output.
    pub(crate) fn line(self, text: impl std::fmt::Display) -> std::io::Result<()> {
        writeln!(std::io::stdout(), "{text}")
    }

    /// Prints a hint for people to standard error. Nothing is printed if the output is not a
    /// terminal.
    pub(crate) fn hint(self, text: impl std::fmt::Display) -> std::io::Result<()> {
        if self.is_terminal {
            writeln!(std::io::stderr(), "{text}")
        } else {
            Ok(())
        }
    }

    /// Says that there are more pages. Scripts read `nextCursor` of the JSON instead.
    pub(crate) fn more(self, cursor: &str) -> std::io::Result<()> {
        self.hint(format_args!("\nThere are more: --cursor {cursor}"))
    }

    /// A table without borders. On a terminal it fits the width; elsewhere each row is one line.
    pub(crate) fn table(self, header: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_content_arrangement(if self.is_terminal {
            ContentArrangement::Dynamic
        } else {
            ContentArrangement::Disabled
        });

        if !header.is_empty() {
            let bold = |name| self.styled(Cell::new(name), Some(Attribute::Bold), None);
            table.set_header(header.iter().map(bold));
        }

        table
    }

    pub(crate) fn show(self, mut table: Table) -> std::io::Result<()> {
        if let Some(first) = table.column_mut(0) {
            first.set_padding((0, 1));
        }

        self.line(table.trim_fmt())
    }

    pub(crate) fn dim(self, text: impl ToString) -> Cell {
        self.styled(Cell::new(text.to_string()), Some(Attribute::Dim), None)
    }

    pub(crate) fn status(self, status: Status) -> Cell {
        let colour = match status {
            Status::Queued | Status::Waiting => Color::Blue,
            Status::Running => Color::Cyan,
            Status::Retrying | Status::CompletedWithErrors => Color::Yellow,
            Status::Completed => Color::Green,
            Status::Failed | Status::DeadLetter => Color::Red,
            Status::Cancelled => Color::DarkGrey,
        };

        self.styled(Cell::new(status.as_str()), None, Some(colour))
    }

    fn styled(self, cell: Cell, attribute: Option<Attribute>, colour: Option<Color>) -> Cell {
        let mut cell = cell;
        if !self.has_colours {
            return cell;
        }

        if let Some(attribute) = attribute {
            cell = cell.add_attribute(attribute);
        }
        if let Some(colour) = colour {
            cell = cell.fg(colour);
        }

        cell
    }
}
