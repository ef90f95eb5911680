//! Measures the HTTP API: the rate of submits beside that of the store, the latency of reads at a
//! steady rate, the latency of progress, and the start of tasks behind a flood. Client and server
//! share the machine, as in every benchmark here.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints its progress and a table"
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

    make bench-http                                  everything; a million tasks, takes minutes
    make bench-http ARGS='--quick'                   smaller numbers
    make bench-http ARGS='sqlite submits'            one database, one part

Databases: sqlite postgres mysql. Parts: submits reads live tiers.
";

/// What to measure, and how much.
#[derive(Debug, Default)]
struct Plan {
    backends: Vec<Backend>,
    measures: Vec<&'static str>,
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
            "submits" => plan.measures.push("submits"),
            "reads" => plan.measures.push("reads"),
            "live" => plan.measures.push("live"),
            "tiers" => plan.measures.push("tiers"),
            other => bail!("{other:?} is not known\n\n{HELP}"),
        }
    }

    if plan.backends.is_empty() {
        plan.backends = vec![Backend::Sqlite, Backend::Postgres, Backend::MySql];
    }
    if plan.measures.is_empty() {
        plan.measures = vec!["submits", "reads", "live", "tiers"];
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
        for part in &plan.measures {
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
