//! Torture: real processes, a real database, random kills and freezes, and a checker.
//!
//! `torture run` starts private servers and worker processes (`torture node`), submits a seeded mix
//! of tasks and injects faults by a seeded schedule. Then it compares the client's answers, the
//! workers' journals and the database. See docs/torture.md.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints its progress and its results"
)]

mod checker;
mod client;
mod cluster;
mod dump;
mod fault;
mod gateway;
mod history;
mod http_gateway;
mod journal;
mod links;
mod nemesis;
mod node;
mod plan;
mod probe;
mod report;
mod run;
mod server;
mod settings;
mod setup;
mod tasks;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Kills and freezes nodes and database servers under load, and checks every promise.
#[derive(Debug, Parser)]
#[command(name = "torture")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Executes one run. The last line of the output has its figures, and the exit status is the
    /// checker's verdict.
    Run(run::Options),
    /// A worker process, started by `run`.
    Node(node::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let ended = match Arguments::parse().command {
        Command::Run(options) => run::run(options).await,
        Command::Node(options) => node::run(options).await.map(|()| true),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: {error:#}");
            ExitCode::FAILURE
        }
    }
}
