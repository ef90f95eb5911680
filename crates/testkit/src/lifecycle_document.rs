//! `docs/lifecycle.md`, generated from the lifecycle table.

use std::fmt::Write as _;

use longhaul_domain::{
    Status,
    lifecycle::table::{Cell, TABLE},
};

/// The whole document.
pub fn markdown() -> String {
    let mut text = String::from(HEAD);
    text.push_str(&picture());
    text.push_str(
        "\n## Commands\n\n| command | fenced by the lease | what it does |\n| --- | --- | --- |\n",
    );

    for (command, _) in TABLE {
        let fenced = if command.is_fenced() { "yes" } else { "" };
        let _ = writeln!(
            text,
            "| {} | {fenced} | {} |",
            command.as_str(),
            command.summary()
        );
    }

    text.push_str(TABLE_HEAD);
    text.push_str(&table());
    text
}

const HEAD: &str = "\
# The lifecycle of a task

Made from `crates/domain/src/lifecycle/table.rs` by `make generate`; do not edit. \
Every store is tested against the
same table: each state with each command.

";

const TABLE_HEAD: &str = "
## The table

Each row is a command, each column the state that the task is in. A cell names \
where the task may go. An empty cell is
a refusal that changes nothing; `=` means that the command succeeds and changes nothing; \
`removed` that the task is
gone. A new task enters as `QUEUED`.

";

/// The moves between states as a Mermaid diagram.
fn picture() -> String {
    let mut text = String::from("```mermaid\nstateDiagram-v2\n    [*] --> QUEUED: submit\n");
    for from in Status::ALL {
        for to in Status::ALL.into_iter().filter(|to| *to != from) {
            let leads_there = |cells: &[Cell]| match &cells[from as usize] {
                Cell::To(targets) => targets.contains(&to),
                Cell::Refused | Cell::Unchanged | Cell::Gone => false,
            };
            let rows = TABLE.iter().filter(|(_, cells)| leads_there(cells));
            let commands: Vec<&str> = rows.map(|(command, _)| command.as_str()).collect();
            if !commands.is_empty() {
                let _ = writeln!(
                    text,
                    "    {} --> {}: {}",
                    from.as_str(),
                    to.as_str(),
                    commands.join(", ")
                );
            }
        }
    }

    for ended in Status::ALL.into_iter().filter(|status| status.is_ended()) {
        let _ = writeln!(text, "    {} --> [*]: prune", ended.as_str());
    }

    text.push_str("```\n");
    text
}

fn table() -> String {
    let names: Vec<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
    let mut text = format!(
        "| command | {} |\n|{}\n",
        names.join(" | "),
        " --- |".repeat(names.len() + 1)
    );

    for (command, cells) in TABLE {
        let shown: Vec<String> = cells.iter().map(cell).collect();
        let _ = writeln!(text, "| {} | {} |", command.as_str(), shown.join(" | "));
    }

    text
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Refused => String::new(),
        Cell::Unchanged => "=".to_owned(),
        Cell::Gone => "removed".to_owned(),
        Cell::To(targets) => targets
            .iter()
            .map(|status| status.as_str())
            .collect::<Vec<_>>()
            .join(", "),
    }
}
