//! The conductor: sets everything up, lets client and nemesis loose, waits for the dust to settle, and has it checked.

use std::path::{Path, PathBuf};
use std::sync::{Arc, atomic::Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::{
    checker::{self, Evidence, Finding, Sighting},
    client::{self, Pace},
    cluster::Cluster,
    door::{Answer, Door, Request},
    dump,
    fault::{Deed, Tally},
    history::{self, History},
    journal,
    nemesis::Nemesis,
    plan,
    report::{self, Figures, Progress, Run, Wanted},
    server::{self, Service},
    settings::{LEASE, OPERATION_WAIT, STUCK_AFTER_LEASE},
    stage::Stage,
};

/// Tasks from which on a run counts as a full one.
const FULL_TASKS: usize = 5_000;
/// Findings that are printed; all of them are in the run's folder.
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

    /// The server that it needs.
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
    /// With RabbitMQ and Redis, nodes for the API, and a network that breaks.
    Fleet,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[arg(long, value_enum)]
    store: Store,
    /// Tasks that the client submits; the children of parents come on top.
    #[arg(long, default_value_t = 20_000)]
    tasks: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The time over which the tasks are submitted and things are broken.
    #[arg(long)]
    seconds: Option<u64>,
    /// How much must have happened for the run to count: by default full from 5,000 tasks on.
    #[arg(long, value_enum)]
    profile: Option<Profile>,
    /// The name of the run: its folder is target/torture/NAME, and its server has data of its own.
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

/// Runs, and answers whether every promise was kept and the run was worth something.
pub(crate) async fn run(options: Options) -> anyhow::Result<bool> {
    tokio::select! {
        verdict = conduct(&options) => verdict,
        () = interrupted() => anyhow::bail!("interrupted"),
    }
}

/// Ctrl-C and the request to end: whatever was started goes with its owners.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

async fn conduct(options: &Options) -> anyhow::Result<bool> {
    let started = Instant::now();
    let dir = server::repository()
        .join("target/torture")
        .join(options.name());
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir)?;
    eprintln!("torture: everything about this run is in {}", dir.display());

    if options.profile() == Profile::Fleet && options.store == Store::Sqlite {
        anyhow::bail!(
            "a fleet has many processes, and SQLite has one; allowed: --store postgres or mysql"
        );
    }
    let stage = Stage::build(
        options.store,
        options.profile(),
        &options.name(),
        &dir,
        options.seed,
    )
    .await?;
    let told = torment(options, &stage).await?;
    let services = stage.targets.services();
    let dump = dump::read(options.store, &stage.url)
        .await
        .context("the database cannot be read")?;
    stage.close().await?;

    history::write(&told.stories, &dir.join("history.jsonl"))?;
    std::fs::write(
        dir.join("nemesis.json"),
        serde_json::to_string_pretty(&told.deeds)?,
    )?;
    let mut evidence = Evidence::new(told.stories, told.deeds, sightings(&dir)?, dump);
    evidence.panics = panics(&dir)?;
    let findings = checker::findings(&evidence);
    let seconds = started.elapsed().as_secs_f64();
    let figures = Figures {
        gave_up: told.gave_up,
        seconds,
        ..Figures::of(&evidence, &services)
    };
    conclude(options, &dir, &figures, &findings)
}

/// Says what came out, keeps it in the run's folder, and gives the verdict.
fn conclude(
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

/// What client and nemesis have to tell.
struct Told {
    stories: Vec<history::Story>,
    deeds: Vec<Deed>,
    gave_up: usize,
}

/// Load and faults, then quiet until everything has ended or is stuck.
async fn torment(options: &Options, stage: &Stage) -> anyhow::Result<Told> {
    let cluster = Cluster::start(stage.plans.clone());
    let door = stage.door(&cluster)?;
    let items = plan::items(options.seed, options.tasks);
    let moments = plan::moments(options.seed, options.tasks, options.time());
    let history = Arc::new(History::new(items.clone()));
    let nemesis = Nemesis::new(options.seed, &cluster, stage.targets.clone(), door.clone());
    let pace = Arc::new(Pace {
        deeds: nemesis.deeds.clone(),
        ..Pace::default()
    });
    let tally = Arc::clone(&nemesis.tally);
    let (ending, is_ending) = watch::channel(false);
    let watching = tokio::spawn(watch_it(
        door.clone(),
        Arc::clone(&pace),
        tally,
        options.tasks,
        is_ending.clone(),
    ));

    let mut breaking = tokio::spawn(nemesis.run(is_ending));
    let stories = tokio::select! {
        stories = client::run(door.clone(), Arc::clone(&history), items, moments, pace) => stories,
        // It goes on until it is told otherwise, unless something could not be mended.
        ended = &mut breaking => return Err(ended?.err().unwrap_or_else(|| anyhow::anyhow!("the nemesis gave up"))),
    };
    ending.send_replace(true);
    let deeds = breaking.await??;
    settle(&door, stories).await;
    watching.await?;
    let gave_up = cluster.stop().await? as usize;
    drop(door);
    let history = Arc::into_inner(history).context("the client still writes history")?;
    Ok(Told {
        stories: history.into_stories(),
        deeds,
        gave_up,
    })
}

/// Waits until the client has all its answers and every task has ended. What is not done in time is stuck, and the
/// checker will see it.
async fn settle(door: &Door, mut stories: JoinSet<()>) {
    let quiet = async {
        while stories.join_next().await.is_some() {}
        while door.ask(Request::CountOpen).await != Answer::Open(0) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    // The last task that the client submitted is due within this; everything else is due sooner.
    let last_due = Duration::from_secs(5);
    // An operation that was under way when the last fault ended may take its time yet: over a connection that was left half
    // open, or on a machine that is busy with another run.
    let patience = LEASE + STUCK_AFTER_LEASE + OPERATION_WAIT;
    if tokio::time::timeout(last_due + patience, quiet)
        .await
        .is_err()
    {
        stories.shutdown().await;
        eprintln!("torture: something has not ended in time");
    }
}

/// Counts what is open for the client's pace, and shows how far it is.
async fn watch_it(
    door: Door,
    pace: Arc<Pace>,
    tally: Arc<Tally>,
    tasks: usize,
    mut ending: watch::Receiver<bool>,
) {
    let mut progress = Progress::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
            _ = ending.wait_for(|is_ending| *is_ending) => break,
        }
        let counted = door.ask(Request::CountOpen).await;
        pace.is_away
            .store(matches!(counted, Answer::Unknown(_)), Ordering::Relaxed);
        if let Answer::Open(open) = counted {
            pace.open.store(open, Ordering::Relaxed);
        }
        let text = format!(
            "submitted, {} open; {} kills, {} stops, {} blows to servers, {} partitions",
            pace.open.load(Ordering::Relaxed),
            tally.kills.load(Ordering::Relaxed),
            tally.freezes.load(Ordering::Relaxed),
            tally.servers.load(Ordering::Relaxed),
            tally.partitions.load(Ordering::Relaxed),
        );
        progress.show(pace.acknowledged.load(Ordering::Relaxed), tasks, &text);
    }
    progress.end();
}

/// Every line of every worker's file.
fn sightings(dir: &Path) -> anyhow::Result<Vec<Sighting>> {
    let mut sightings = Vec::new();
    for path in files(dir, "worker-", ".jsonl")? {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let incarnation = name
            .trim_start_matches("worker-")
            .trim_end_matches(".jsonl")
            .to_owned();
        let lines = journal::read(&path)?;
        sightings.extend(lines.into_iter().map(|line| Sighting {
            incarnation: incarnation.clone(),
            line,
        }));
    }
    Ok(sightings)
}

/// Lines of the nodes' logs that tell of a panic.
fn panics(dir: &Path) -> anyhow::Result<Vec<String>> {
    let mut panics = Vec::new();
    for path in files(dir, "node-", ".log")? {
        let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
        panics.extend(
            text.lines()
                .filter(|line| line.contains("panicked at"))
                .map(str::to_owned),
        );
    }
    Ok(panics)
}

fn files(dir: &Path, before: &str, after: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with(before) && name.ends_with(after) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
