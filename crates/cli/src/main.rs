//! The program `longhaul`.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use longhaul_cli::{
    client::finish,
    commands::{bench, cancel, completions, dev, get, list, retry, submit, top, watch, why},
    telemetry::{self, LogFormat, TelemetrySettings},
};

/// Durable background tasks.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version)]
struct Program {
    /// How much is logged: error, warn, info, debug, trace, or a filter such as `info,longhaul_store=debug`.
    #[arg(long, global = true, default_value = "info")]
    log: String,
    /// How lines of the log are written: pretty or json.
    #[arg(long, global = true, default_value = "pretty")]
    log_format: LogFormat,
    /// A collector that traces are sent to by OTLP over HTTP, as http://127.0.0.1:4318. Without it, the variable
    /// OTEL_EXPORTER_OTLP_ENDPOINT counts; without either, nothing is sent.
    #[arg(long, global = true)]
    otlp_endpoint: Option<String>,
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
    let settings = TelemetrySettings {
        level: program.log,
        format: program.log_format,
        otlp_endpoint: program.otlp_endpoint.or_else(collector),
    };
    let telemetry = match telemetry::start(&settings) {
        Ok(telemetry) => telemetry,
        Err(error) => return refuse(&error),
    };
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
    let code = match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    };
    telemetry.stop().await;
    code
}

/// The collector that the environment names, as OpenTelemetry says.
#[expect(clippy::disallowed_methods, reason = "the program's own edge: it is passed in from here")]
fn collector() -> Option<String> {
    std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok().filter(|address| !address.is_empty())
}

#[expect(clippy::print_stderr, reason = "there is no log yet")]
fn refuse(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(2)
}
