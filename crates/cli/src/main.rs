//! The program `longhaul`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use longhaul_cli::commands::{dev, doctor, migrate, serve, token, worker};
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
    /// A node: the HTTP API, a worker and the background duties, or some of them.
    Serve(serve::Serve),
    /// A node that only runs tasks.
    Worker(worker::Worker),
    /// Brings the schema of the store up to date.
    Migrate(migrate::Migrate),
    /// Makes, lists and revokes the tokens of callers.
    Token(token::Token),
    /// Checks configuration, store, clock, folders and port, and says what to do.
    Doctor(doctor::Doctor),
}

#[tokio::main]
async fn main() -> ExitCode {
    let program = Program::parse();
    tracing_subscriber::fmt().with_max_level(program.log).with_writer(std::io::stderr).init();
    let done = match program.command {
        Command::Dev(dev) => dev::run(dev).await,
        Command::Serve(serve) => serve::run(serve).await,
        Command::Worker(worker) => worker::run(worker).await,
        Command::Migrate(migrate) => migrate::run(migrate).await,
        Command::Token(token) => token::run(token).await,
        Command::Doctor(doctor) => doctor::run(doctor).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
