//! Measures each store beside bare loops on the same server in the same run, and prints ratios.
//!
//! One bare loop sends the store's own statements without the store, so its ratio is the cost of
//! our code. The other has a table of seven columns with the index of its claim, and no history,
//! counts, fences or owners, so its ratio shows the limit of the database. Figures are medians of
//! three, because machines are noisy, and ratios, because machines differ.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints its progress and a table"
)]

mod backlog;
mod bare;
mod database;
mod ours;
mod report;
mod same;
mod throughput;

use anyhow::{Context as _, bail};
use database::Backend;

const HELP: &str = "\
Measures the stores beside bare loops. Run it with `make bench-store`.

    make bench-store                                  everything; millions of rows, takes long
    make bench-store ARGS='--quick'                   smaller numbers, one repetition
    make bench-store ARGS='postgres throughput'       one database, one part
    make bench-store ARGS='sqlite backlog --reps 1'

Databases: sqlite postgres mysql. Parts: throughput backlog snapshot (PostgreSQL only), and drain, a
longer drain alone, for a profiler.
";

/// What to measure, and how much.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) backends: Vec<Backend>,
    pub(crate) measures: Vec<&'static str>,
    pub(crate) repetitions: usize,
    pub(crate) quick: bool,
}

fn plan(arguments: impl Iterator<Item = String>) -> anyhow::Result<Option<Plan>> {
    let mut plan = Plan {
        backends: Vec::new(),
        measures: Vec::new(),
        repetitions: 3,
        quick: false,
    };

    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--quick" => {
                plan.quick = true;
                plan.repetitions = 1;
            }
            "--reps" => {
                plan.repetitions = arguments.next().context("--reps takes a number")?.parse()?
            }
            "sqlite" => plan.backends.push(Backend::Sqlite),
            "postgres" => plan.backends.push(Backend::Postgres),
            "mysql" => plan.backends.push(Backend::MySql),
            "throughput" => plan.measures.push("throughput"),
            "drain" => plan.measures.push("drain"),
            "backlog" => plan.measures.push("backlog"),
            "snapshot" => plan.measures.push("snapshot"),
            other => bail!("{other:?} is not known\n\n{HELP}"),
        }
    }

    if plan.backends.is_empty() {
        plan.backends = vec![Backend::Sqlite, Backend::Postgres, Backend::MySql];
    }
    if plan.measures.is_empty() {
        plan.measures = vec!["throughput", "backlog", "snapshot"];
    }

    Ok(Some(plan))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(plan) = plan(std::env::args().skip(1))? else {
        print!("{HELP}");
        return Ok(());
    };
    let mut report = report::Report::default();

    for backend in &plan.backends {
        for part in &plan.measures {
            match *part {
                "throughput" => throughput::measure(*backend, &plan, &mut report).await?,
                "drain" => throughput::measure_drain(*backend, &plan, &mut report).await?,
                "backlog" => backlog::measure(*backend, &plan, &mut report).await?,
                "snapshot" if *backend == Backend::Postgres => {
                    backlog::measure_snapshot(&plan, &mut report).await?
                }
                _ => {}
            }
        }
    }

    println!("{}", report.markdown());
    Ok(())
}
