//! The program `longhaul`.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use longhaul_cli::{
    client::finish,
    commands::{bench, cancel, completions, dev, get, list, retry, submit, top, watch, why},
};
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
    /// Makes a task.
    Submit(submit::Submit),
    /// Shows a task, its attempts, log lines or children.
    Get(get::Get),
    /// Lists tasks.
    List(list::List),
    /// Shows the progress of a task until it has ended.
    Watch(watch::Watch),
    /// Cancels tasks and all below them.
    Cancel(cancel::Cancel),
    /// Runs again what ended badly.
    Retry(retry::Retry),
    /// Says why a task is not running yet.
    Why(why::Why),
    /// Queues, running tasks, nodes and throughput, live on the whole screen.
    Top(top::Top),
    /// Measures how many small tasks a server takes and runs.
    Bench(bench::Bench),
    /// Writes a script that completes commands and options in a shell.
    Completions(completions::Completions),
}

#[tokio::main]
async fn main() -> ExitCode {
    let program = Program::parse();
    tracing_subscriber::fmt().with_max_level(program.log).with_writer(std::io::stderr).init();
    let done = match program.command {
        Command::Dev(dev) => dev::run(dev).await,
        Command::Submit(command) => return finish(submit::run(command).await),
        Command::Get(command) => return finish(get::run(command).await),
        Command::List(command) => return finish(list::run(command).await),
        Command::Watch(command) => return finish(watch::run(command).await),
        Command::Cancel(command) => return finish(cancel::run(command).await),
        Command::Retry(command) => return finish(retry::run(command).await),
        Command::Why(command) => return finish(why::run(command).await),
        Command::Top(command) => return finish(top::run(command).await),
        Command::Bench(command) => return finish(bench::run(command).await),
        Command::Completions(command) => return finish(completions::run(&command, Program::command())),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
