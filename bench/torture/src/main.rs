//! Torture: real processes, a real database, random kills and freezes, and a checker that knows what was promised.
//!
//! The conductor (`torture run`) starts a private database server and worker processes (`torture node`), submits a
//! seeded mix of tasks, breaks things by a seeded schedule, and then compares what the client was told, what the
//! workers wrote into their own files and what the database holds. See docs/torture.md.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints its progress and its figures"
)]

mod checker;
mod client;
mod cluster;
mod conductor;
mod door;
mod dump;
mod fault;
mod history;
mod http_door;
mod journal;
mod links;
mod nemesis;
mod node;
mod plan;
mod report;
mod server;
mod settings;
mod speak;
mod stage;
mod tasks;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Kills and freezes nodes and database servers under load, and checks that every promise was kept.
#[derive(Debug, Parser)]
#[command(name = "torture")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Conducts one run; the last line of the output is its figures, and the exit status the checker's verdict.
    Run(conductor::Options),
    /// A worker process; the conductor starts it.
    Node(node::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let ended = match Arguments::parse().command {
        Command::Run(options) => conductor::run(options).await,
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
