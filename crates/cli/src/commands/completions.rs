//! `longhaul completions`: a script that completes commands and options in a shell.

use std::io::Write as _;

use clap_complete::Shell;

use crate::client::Exit;

/// Options of `longhaul completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longhaul completions bash > ~/.local/share/bash-completion/completions/longhaul
  longhaul completions zsh > ~/.zfunc/_longhaul
  longhaul completions fish > ~/.config/fish/completions/longhaul.fish")]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

/// Prints the script for the whole program.
pub fn run(completions: &Completions, mut program: clap::Command) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(completions.shell, &mut program, "longhaul", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(Exit::Done)
}
