//! The program `longhaul`.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use longhaul_cli::{
    client::{Ending, causes, finish},
    commands::{
        bench, cancel, completions, dev, doctor, get, list, migrate, retry, serve, submit, token,
        top, watch, why, worker,
    },
    config::Config,
    telemetry::{self, LogFlags},
};

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

fn main() -> ExitCode {
    let program = Program::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            return refuse(
                &anyhow::Error::new(error).context("the program cannot start its threads"),
            );
        }
    };
    let code = runtime.block_on(run(program));
    // A handler that blocks its thread must not keep the program from ending: its task has been handed back by now.
    runtime.shutdown_background();
    code
}

async fn run(program: Program) -> ExitCode {
    let started = match &program.command {
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
    let started =
        started.and_then(|config| Ok((telemetry::start(&program.log.over(&config))?, config)));
    let (telemetry, config) = match started {
        Ok(started) => started,
        Err(error) => return refuse(&error),
    };
    let done = match program.command {
        Command::Dev(dev) => Box::pin(dev::run(dev)).await,
        Command::Serve(serve) => Box::pin(serve::run(serve, config)).await,
        Command::Worker(worker) => Box::pin(worker::run(worker, config)).await,
        Command::Migrate(command) => {
            return finish(migrate::run(command).await.map(|()| Ending::Done));
        }
        Command::Token(command) => return finish(token::run(command).await.map(|()| Ending::Done)),
        Command::Doctor(command) => {
            return finish(doctor::run(command).await.map(|()| Ending::Done));
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

#[expect(clippy::print_stderr, reason = "there is no log yet")]
fn refuse(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {}", causes(error));
    ExitCode::FAILURE
}
