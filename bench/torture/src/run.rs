//! One run: sets everything up, starts client and nemesis, waits until all tasks have ended, and
//! checks the result.

use std::path::{Path, PathBuf};
use std::sync::{Arc, atomic::Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::{
    checker::{self, Evidence, Finding, Observation},
    client::{self, Pace},
    cluster::Cluster,
    dump,
    fault::{FaultCounts, FaultRecord},
    gateway::{Answer, Gateway, Request},
    history::{self, History},
    journal,
    nemesis::Nemesis,
    plan,
    report::{self, Figures, Progress, Run, Wanted},
    server::{self, Service},
    settings::{LEASE, OPERATION_WAIT, STUCK_AFTER_LEASE},
    setup::Setup,
};

/// The least number of tasks of a full run.
const FULL_TASKS: usize = 5_000;
/// The most findings that are printed. All are in the run's folder.
const SHOWN: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    Sqlite,
    Postgres,
    Mysql,
}

impl Store {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    /// The server that the store needs.
    pub(crate) const fn service(self) -> Option<Service> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some(Service::Postgres),
            Self::Mysql => Some(Service::Mariadb),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    Short,
    Full,
    /// With RabbitMQ and Redis, API nodes, and network faults.
    Fleet,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[arg(long, value_enum)]
    store: Store,
    /// Tasks that the client submits, without the children of parents.
    #[arg(long, default_value_t = 20_000)]
    tasks: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The time over which tasks are submitted and faults are injected.
    #[arg(long)]
    seconds: Option<u64>,
    /// How much must happen for the run to count. The default is full from 5,000 tasks on.
    #[arg(long, value_enum)]
    profile: Option<Profile>,
    /// The name of the run. Its folder is target/torture/NAME, and its servers have their own data.
    #[arg(long)]
    name: Option<String>,
}

impl Options {
    fn profile(&self) -> Profile {
        let by_size = if self.tasks >= FULL_TASKS {
            Profile::Full
        } else {
            Profile::Short
        };
        self.profile.unwrap_or(by_size)
    }

    fn time(&self) -> Duration {
        let by_size = match self.profile() {
            Profile::Short | Profile::Full => (self.tasks as u64 / 60).max(25),
            Profile::Fleet => (self.tasks as u64 / 130).max(60),
        };
        Duration::from_secs(self.seconds.unwrap_or(by_size))
    }

    fn name(&self) -> String {
        let before = if self.profile() == Profile::Fleet {
            "fleet-"
        } else {
            ""
        };

        self.name
            .clone()
            .unwrap_or_else(|| format!("{before}{}", self.store.name()))
    }

    fn wanted(&self) -> Wanted {
        Wanted::of(self.store, self.profile(), self.tasks >= FULL_TASKS)
    }
}

/// Executes the run. Returns whether no promise was broken and enough has happened.
pub(crate) async fn run(options: Options) -> anyhow::Result<bool> {
    // An interrupt drops the run, and with it all its processes.
    tokio::select! {
        verdict = execute(&options) => verdict,
        () = interrupted() => anyhow::bail!("interrupted"),
    }
}

/// Waits for Ctrl-C or SIGTERM.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};

    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };

    // Both signals mean the same: stop.
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

async fn execute(options: &Options) -> anyhow::Result<bool> {
    let started = Instant::now();
    let dir = server::repository()
        .join("target/torture")
        .join(options.name());
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir)?;
    eprintln!("torture: the files of this run are in {}", dir.display());

    if options.profile() == Profile::Fleet && options.store == Store::Sqlite {
        anyhow::bail!(
            "a fleet has many processes, and SQLite allows one; allowed: --store postgres or mysql"
        );
    }

    let setup = Setup::build(
        options.store,
        options.profile(),
        &options.name(),
        &dir,
        options.seed,
    )
    .await?;
    let observed = run_load(options, &setup).await?;

    let services = setup.targets.services();
    let dump = dump::read(options.store, &setup.url)
        .await
        .context("the database cannot be read")?;
    setup.close().await?;

    history::write(&observed.histories, &dir.join("history.jsonl"))?;
    std::fs::write(
        dir.join("nemesis.json"),
        serde_json::to_string_pretty(&observed.fault_log)?,
    )?;

    let mut evidence = Evidence::new(
        observed.histories,
        observed.fault_log,
        observations(&dir)?,
        dump,
    );
    evidence.panics = panics(&dir)?;
    let findings = checker::findings(&evidence);
    let seconds = started.elapsed().as_secs_f64();
    let figures = Figures {
        unexpected_exits: observed.unexpected_exits,
        seconds,
        ..Figures::of(&evidence, &services)
    };

    write_report(options, &dir, &figures, &findings)
}

/// Prints the results and writes them to the run's folder. Returns the verdict.
fn write_report(
    options: &Options,
    dir: &Path,
    figures: &Figures,
    findings: &[Finding],
) -> anyhow::Result<bool> {
    let trivial = figures.trivial(&options.wanted());
    let all: Vec<String> = findings.iter().map(ToString::to_string).collect();
    std::fs::write(dir.join("findings.txt"), all.join("\n"))?;

    for finding in all.iter().take(SHOWN) {
        println!("  {finding}");
    }

    if all.len() > SHOWN {
        println!(
            "  … and {} more in {}",
            all.len() - SHOWN,
            dir.join("findings.txt").display()
        );
    }

    let run = Run {
        store: options.store,
        is_fleet: options.profile() == Profile::Fleet,
        tasks: options.tasks,
        seed: &options.seed,
    };

    let text = report::text(&run, figures, findings, &trivial);
    std::fs::write(dir.join("report.txt"), &text)?;
    println!("{text}");
    Ok(findings.is_empty() && trivial.is_empty())
}

/// What client and nemesis have recorded.
struct Observed {
    histories: Vec<history::ItemHistory>,
    fault_log: Vec<FaultRecord>,
    unexpected_exits: usize,
}

/// Submits tasks and injects faults, then waits until every task has ended or is stuck.
async fn run_load(options: &Options, setup: &Setup) -> anyhow::Result<Observed> {
    let cluster = Cluster::start(setup.plans.clone());
    let gateway = setup.gateway(&cluster)?;

    let items = plan::items(options.seed, options.tasks);
    let submit_times = plan::submit_times(options.seed, options.tasks, options.time());
    let history = Arc::new(History::new(items.clone()));

    let nemesis = Nemesis::new(
        options.seed,
        &cluster,
        setup.targets.clone(),
        gateway.clone(),
    );
    let pace = Arc::new(Pace {
        fault_log: nemesis.fault_log.clone(),
        ..Pace::default()
    });

    // The display runs beside the load, so that it shows a stuck run too.
    let fault_counts = Arc::clone(&nemesis.fault_counts);
    let (ending, is_ending) = watch::channel(false);
    let watching = tokio::spawn(watch_progress(
        gateway.clone(),
        Arc::clone(&pace),
        fault_counts,
        options.tasks,
        is_ending.clone(),
    ));

    // The nemesis runs beside the client, and ends before the tasks are counted.
    let mut breaking = tokio::spawn(nemesis.run(is_ending));
    let client = client::run(
        gateway.clone(),
        Arc::clone(&history),
        items,
        submit_times,
        pace,
    );
    let following = tokio::select! {
        following = client => following,
        // The nemesis ends by itself only when it cannot repair a server.
        ended = &mut breaking => {
            let error = ended?.err();
            return Err(error.unwrap_or_else(|| anyhow::anyhow!("the nemesis ended early")));
        }
    };

    ending.send_replace(true);
    let fault_log = breaking.await??;
    settle(&gateway, following).await;
    watching.await?;
    let unexpected_exits = cluster.stop().await? as usize;

    drop(gateway);
    let history = Arc::into_inner(history).context("the client still writes history")?;
    Ok(Observed {
        histories: history.into_histories(),
        fault_log,
        unexpected_exits,
    })
}

/// Waits until the client has all its answers and every task has ended. The checker reports what is
/// not done in time as stuck.
async fn settle(gateway: &Gateway, mut following: JoinSet<()>) {
    let quiet = async {
        while following.join_next().await.is_some() {}
        while gateway.ask(Request::CountOpen).await != Answer::Open(0) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };

    // The last task that the client submitted is due within this time.
    let last_due = Duration::from_secs(5);
    // An operation may still be in progress after the last fault: on a half-open connection, or on
    // a machine that is busy with another run.
    let limit = last_due + LEASE + STUCK_AFTER_LEASE + OPERATION_WAIT;
    if tokio::time::timeout(limit, quiet).await.is_err() {
        following.shutdown().await;
        eprintln!("torture: not everything has ended in time");
    }
}

/// Counts open tasks for the client's pace, and prints the progress.
async fn watch_progress(
    gateway: Gateway,
    pace: Arc<Pace>,
    fault_counts: Arc<FaultCounts>,
    tasks: usize,
    mut ending: watch::Receiver<bool>,
) {
    let mut progress = Progress::new();
    loop {
        // Only the pause is cut short: a count under way is awaited.
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
            _ = ending.wait_for(|is_ending| *is_ending) => break,
        }

        let counted = gateway.ask(Request::CountOpen).await;
        pace.is_down
            .store(matches!(counted, Answer::Unknown(_)), Ordering::Relaxed);
        if let Answer::Open(open) = counted {
            pace.open.store(open, Ordering::Relaxed);
        }

        let text = format!(
            "submitted, {} open; {} kills, {} stops, {} server faults, {} partitions",
            pace.open.load(Ordering::Relaxed),
            fault_counts.kills.load(Ordering::Relaxed),
            fault_counts.freezes.load(Ordering::Relaxed),
            fault_counts.servers.load(Ordering::Relaxed),
            fault_counts.partitions.load(Ordering::Relaxed),
        );

        progress.show(pace.acknowledged.load(Ordering::Relaxed), tasks, &text);
    }

    progress.end();
}

/// Every record of every worker's journal.
fn observations(dir: &Path) -> anyhow::Result<Vec<Observation>> {
    let mut observations = Vec::new();
    for path in files(dir, "worker-", ".jsonl")? {
        let name = file_name(&path);
        let name = name.trim_start_matches("worker-");
        let incarnation = name.trim_end_matches(".jsonl");

        for line in journal::read(&path)? {
            observations.push(Observation {
                incarnation: incarnation.to_owned(),
                line,
            });
        }
    }

    Ok(observations)
}

/// The lines of the nodes' logs that report a panic.
fn panics(dir: &Path) -> anyhow::Result<Vec<String>> {
    let mut panics = Vec::new();
    for path in files(dir, "node-", ".log")? {
        let bytes = std::fs::read(&path)?;
        let text = String::from_utf8_lossy(&bytes);
        let panicked = text.lines().filter(|line| line.contains("panicked at"));
        panics.extend(panicked.map(str::to_owned));
    }

    Ok(panics)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn files(dir: &Path, before: &str, after: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = file_name(&path);
        if name.starts_with(before) && name.ends_with(after) {
            found.push(path);
        }
    }

    found.sort();
    Ok(found)
}
