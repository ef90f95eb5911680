//! The program `longhaul`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use longhaul_cli::commands::dev;
use tracing_subscriber::filter::LevelFilter;

/// Durable background tasks.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version)]
struct Program {
    /// How much is logged: error, warn, info, debug or trace.
    #[arg(long, global = true, default_value = "info")]
    log: LevelFilter,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything in one process: embedded store, worker, HTTP API and sample tasks. No token is needed.
    Dev(dev::Dev),
}

#[tokio::main]
async fn main() -> ExitCode {
    let program = Program::parse();
    tracing_subscriber::fmt().with_max_level(program.log).with_writer(std::io::stderr).init();
    let done = match program.command {
        Command::Dev(dev) => dev::run(dev).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
