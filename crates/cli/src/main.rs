//! The program `longhaul`.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use longhaul_cli::{
    client::{Exit, causes, finish},
    commands::{
        bench, cancel, completions, dev, doctor, get, list, migrate, retry, serve, submit, token,
        top, watch, why, worker,
    },
    config::Config,
    telemetry::{self, LogFlags},
};

/// The system's allocator keeps the memory that many connections used for a moment. This one gives
/// it back within seconds.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Durable background tasks.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version)]
struct Program {
    #[command(flatten)]
    log: LogFlags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything in one process: embedded store, worker, HTTP API and sample tasks. It needs
    /// no token.
    Dev(dev::Dev),
    /// Run a node: the HTTP API, a worker and background maintenance, or some of them.
    Serve(serve::Serve),
    /// Run a node that only runs tasks.
    Worker(worker::Worker),
    /// Migrate the schema of the store and declare the queues of the broker.
    Migrate(migrate::Migrate),
    /// Create, list and revoke the tokens of callers.
    Token(token::Token),
    /// Check configuration, servers, clock, folders and port, and say what to do.
    Doctor(doctor::Doctor),
    /// Submit a task.
    Submit(submit::Submit),
    /// Show a task, its attempts, log lines or children.
    Get(get::Get),
    /// List tasks.
    List(list::List),
    /// Show the progress of a task until it has ended.
    Watch(watch::Watch),
    /// Cancel tasks and all their descendants.
    Cancel(cancel::Cancel),
    /// Run failed, cancelled and dead-letter tasks again.
    Retry(retry::Retry),
    /// Say why a task is not running yet.
    Why(why::Why),
    /// Show queues, running tasks, nodes and throughput, live on the whole screen.
    Top(top::Top),
    /// Measure how many small tasks a server accepts and runs.
    Bench(bench::Bench),
    /// Print a script that completes commands and options in a shell.
    Completions(completions::Completions),
}

fn main() -> ExitCode {
    let program = Program::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            let error = anyhow::Error::new(error);
            return refuse(&error.context("the program cannot start its threads"));
        }
    };

    let code = runtime.block_on(run(program));
    // Do not wait for a handler that blocks its thread: its task has been handed back by now.
    runtime.shutdown_background();

    code
}

async fn run(program: Program) -> ExitCode {
    let config = match &program.command {
        Command::Serve(serve) => serve.config(),
        Command::Worker(worker) => worker.config(),
        Command::Dev(_)
        | Command::Migrate(_)
        | Command::Token(_)
        | Command::Doctor(_)
        | Command::Submit(_)
        | Command::Get(_)
        | Command::List(_)
        | Command::Watch(_)
        | Command::Cancel(_)
        | Command::Retry(_)
        | Command::Why(_)
        | Command::Top(_)
        | Command::Bench(_)
        | Command::Completions(_) => Ok(Config::default()),
    };

    let config = match config {
        Ok(config) => config,
        Err(error) => return refuse(&error),
    };
    let telemetry = match telemetry::start(&program.log.over(&config)) {
        Ok(telemetry) => telemetry,
        Err(error) => return refuse(&error),
    };

    let done = match program.command {
        Command::Dev(dev) => Box::pin(dev::run(dev)).await,
        Command::Serve(serve) => Box::pin(serve::run(serve, config)).await,
        Command::Worker(worker) => Box::pin(worker::run(worker, config)).await,
        Command::Migrate(command) => {
            return finish(migrate::run(command).await.map(|()| Exit::Done));
        }
        Command::Token(command) => return finish(token::run(command).await.map(|()| Exit::Done)),
        Command::Doctor(command) => {
            return finish(doctor::run(command).await.map(|()| Exit::Done));
        }
        Command::Submit(command) => return finish(submit::run(command).await),
        Command::Get(command) => return finish(get::run(command).await),
        Command::List(command) => return finish(list::run(command).await),
        Command::Watch(command) => return finish(watch::run(command).await),
        Command::Cancel(command) => return finish(cancel::run(command).await),
        Command::Retry(command) => return finish(retry::run(command).await),
        Command::Why(command) => return finish(why::run(command).await),
        Command::Top(command) => return finish(top::run(command).await),
        Command::Bench(command) => return finish(bench::run(command).await),
        Command::Completions(command) => {
            return finish(completions::run(&command, Program::command()));
        }
    };

    let code = match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", causes(&error));
            ExitCode::FAILURE
        }
    };

    telemetry.stop().await;
    code
}

/// Prints an error that comes before logging has started.
#[expect(clippy::print_stderr, reason = "there is no log yet")]
fn refuse(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {}", causes(error));
    ExitCode::FAILURE
}
