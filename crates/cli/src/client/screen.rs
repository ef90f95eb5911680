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

    /// What the command is for.
    pub(crate) fn line(self, text: impl std::fmt::Display) -> std::io::Result<()> {
        writeln!(std::io::stdout(), "{text}")
    }

    /// A word on the side, for people alone: scripts that read the output do not see it.
    pub(crate) fn hint(self, text: impl std::fmt::Display) -> std::io::Result<()> {
        if self.is_terminal {
            writeln!(std::io::stderr(), "{text}")
        } else {
            Ok(())
        }
    }

    /// A page is not all, and nobody must take it for that. Scripts read `nextCursor` of the JSON.
    pub(crate) fn more(self, cursor: &str) -> std::io::Result<()> {
        self.hint(format_args!("\nThere are more: --cursor {cursor}"))
    }

    /// A table without lines. On a terminal it keeps to the width; elsewhere a row is a line.
    pub(crate) fn table(self, header: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if self.is_terminal {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        } else {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
        if !header.is_empty() {
            table.set_header(
                header
                    .iter()
                    .map(|name| self.styled(Cell::new(name), Some(Attribute::Bold), None)),
            );
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
        if !self.has_colours {
            return cell;
        }
        let cell = if let Some(attribute) = attribute {
            cell.add_attribute(attribute)
        } else {
            cell
        };
        if let Some(colour) = colour {
            cell.fg(colour)
        } else {
            cell
        }
    }
}
