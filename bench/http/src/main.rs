//! Measures the HTTP API: how much of the store's rate reaches a client, how long answers take at a steady rate, how
//! soon progress is seen, and how soon tasks start behind a flood. Client and server share the machine, as in every benchmark here.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints a table, and where it is"
)]

mod client;
mod database;
mod live;
mod reads;
mod report;
mod served;
mod submits;
mod tiers;

use anyhow::bail;

use database::Backend;
use report::Report;

const HELP: &str = "\
Measures the HTTP API. Run it with `make bench-http`.

    make bench-http                                  everything; a million tasks, so plan for minutes
    make bench-http ARGS='--quick'                   smaller numbers
    make bench-http ARGS='sqlite submits'            one database, one part

Databases: sqlite postgres mysql. Parts: submits reads live tiers.
";

/// What to measure, and how much of it.
#[derive(Debug, Default)]
struct Plan {
    backends: Vec<Backend>,
    parts: Vec<&'static str>,
    quick: bool,
}

fn plan(arguments: impl Iterator<Item = String>) -> anyhow::Result<Option<Plan>> {
    let mut plan = Plan::default();
    for argument in arguments {
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--quick" => plan.quick = true,
            "sqlite" => plan.backends.push(Backend::Sqlite),
            "postgres" => plan.backends.push(Backend::Postgres),
            "mysql" => plan.backends.push(Backend::MySql),
            "submits" => plan.parts.push("submits"),
            "reads" => plan.parts.push("reads"),
            "live" => plan.parts.push("live"),
            "tiers" => plan.parts.push("tiers"),
            other => bail!("{other:?} is not known\n\n{HELP}"),
        }
    }
    if plan.backends.is_empty() {
        plan.backends = vec![Backend::Sqlite, Backend::Postgres, Backend::MySql];
    }
    if plan.parts.is_empty() {
        plan.parts = vec!["submits", "reads", "live", "tiers"];
    }
    Ok(Some(plan))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(plan) = plan(std::env::args().skip(1))? else {
        print!("{HELP}");
        return Ok(());
    };
    let mut report = Report::default();
    for backend in plan.backends {
        for part in &plan.parts {
            match *part {
                "submits" => submits::measure(backend, plan.quick, &mut report).await?,
                "reads" => reads::measure(backend, plan.quick, &mut report).await?,
                "live" => live::measure(backend, &mut report).await?,
                _ => tiers::measure(backend, &mut report).await?,
            }
        }
    }
    println!("{}", report.markdown());
    Ok(())
}
