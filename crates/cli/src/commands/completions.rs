//! `longhaul completions`: a script that completes commands and options in a shell.

use std::io::Write as _;

use clap_complete::Shell;

use crate::client::Ending;

/// What `completions` can be told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  longhaul completions bash > ~/.local/share/bash-completion/completions/longhaul\n  \
    longhaul completions zsh > ~/.zfunc/_longhaul\n  \
    longhaul completions fish > ~/.config/fish/completions/longhaul.fish"
)]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

/// Writes the script of the whole program.
pub fn run(completions: &Completions, mut program: clap::Command) -> anyhow::Result<Ending> {
    let mut script = Vec::new();
    clap_complete::generate(completions.shell, &mut program, "longhaul", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(Ending::Done)
}
