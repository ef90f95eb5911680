//! The output: progress while it runs, then a table and the line of figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use crate::checker::{Evidence, Finding, Promise};
use crate::run::{Profile, Store};
use crate::{
    fault::{Fault, ServerFault},
    gateway::Answer,
    journal::Step,
    plan::WIDE,
    server::Service,
};

/// How much must happen in a run for its verdict to mean anything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    kills: usize,
    freezes: usize,
    server_kills: usize,
    server_stops: usize,
    zombies: usize,
    rescued: usize,
    retries: usize,
    cancels: usize,
    resumed: usize,
    parents: usize,
    wide_parents: usize,
    unknown: usize,
    /// Of every kind of fault.
    each_fault: usize,
    partitions: usize,
}

impl Wanted {
    pub(crate) const fn of(store: Store, profile: Profile, is_full: bool) -> Self {
        let (server, frozen) = match store {
            Store::Sqlite => (0, 1),
            Store::Postgres | Store::Mysql => (1, 2),
        };

        match profile {
            Profile::Short => Self {
                kills: 3,
                freezes: frozen,
                server_kills: server,
                server_stops: server,
                zombies: 5,
                rescued: 10,
                retries: 50,
                cancels: 20,
                resumed: 1,
                parents: 10,
                wide_parents: 0,
                unknown: 1,
                each_fault: 1,
                partitions: 0,
            },
            // There are many kinds of faults, so there are fewer of each.
            Profile::Fleet if is_full => Self {
                kills: 8,
                freezes: 4,
                server_kills: 2,
                server_stops: 2,
                zombies: 50,
                rescued: 200,
                retries: 1_000,
                cancels: 500,
                resumed: 20,
                parents: 200,
                wide_parents: 2,
                unknown: 20,
                each_fault: 2,
                partitions: 12,
            },
            Profile::Fleet => Self {
                partitions: 3,
                ..Self::of(store, Profile::Short, false)
            },
            Profile::Full => Self {
                kills: 20,
                freezes: 5 * frozen,
                server_kills: 10 * server,
                server_stops: 5 * server,
                zombies: 50,
                rescued: 200,
                retries: 1_000,
                cancels: 500,
                resumed: 20,
                parents: 200,
                wide_parents: 2,
                unknown: 20,
                each_fault: 1,
                partitions: 0,
            },
        }
    }
}

/// The figures of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    pub(crate) tasks: usize,
    pub(crate) children: usize,
    pub(crate) starts: usize,
    pub(crate) kills: usize,
    pub(crate) freezes: usize,
    /// Kills of the database server.
    pub(crate) server_kills: usize,
    /// Freezes of the database server.
    pub(crate) server_stops: usize,
    pub(crate) declared_dead: usize,
    pub(crate) partitions: usize,
    /// How often each kind of fault happened, with 0 for those that did not.
    pub(crate) faults: BTreeMap<Fault, usize>,
    pub(crate) zombies: usize,
    /// Reports that stopped handlers sent to the store anyway.
    pub(crate) late: usize,
    pub(crate) rescued: usize,
    pub(crate) retries: usize,
    /// Attempts whose claim was committed but whose answer was lost.
    pub(crate) strays: usize,
    pub(crate) cancels: usize,
    pub(crate) resumed: usize,
    pub(crate) parents: usize,
    /// Parents with 100 children.
    pub(crate) wide_parents: usize,
    /// Requests without an answer.
    pub(crate) unknown: usize,
    pub(crate) unexpected_exits: usize,
    pub(crate) after_kills_ms: Vec<i64>,
    pub(crate) after_lone_kills_ms: Vec<i64>,
    pub(crate) after_outages_ms: Vec<i64>,
    pub(crate) without_broker_ms: Vec<i64>,
    pub(crate) after_broker_ms: Vec<i64>,
    pub(crate) seconds: f64,
}

impl Figures {
    /// The figures that follow from the evidence. The run adds the rest.
    #[expect(clippy::too_many_lines, reason = "one table, a row after the other")]
    pub(crate) fn of(evidence: &Evidence, services: &[Service]) -> Self {
        let mut faults: BTreeMap<Fault, usize> = Fault::kinds(services)
            .into_iter()
            .map(|kind| (kind, 0))
            .collect();
        for record in &evidence.fault_log {
            *faults.entry(record.fault).or_default() += 1;
        }

        let done = |is_it: fn(&Fault) -> bool| {
            faults
                .iter()
                .filter(|(kind, _)| is_it(kind))
                .map(|(_, n)| *n)
                .sum()
        };

        let rows = |outcome: &str| {
            evidence
                .dump
                .attempts
                .iter()
                .filter(|row| row.outcome == outcome)
                .count()
        };

        let steps = |is_it: fn(&Step) -> bool| {
            evidence
                .all_observations()
                .filter(|seen| is_it(&seen.line.step))
                .count()
        };

        let calls = || evidence.histories.iter().flat_map(|history| &history.calls);
        Self {
            tasks: evidence
                .tasks()
                .iter()
                .filter(|task| task.parent.is_none())
                .count(),
            children: evidence
                .tasks()
                .iter()
                .filter(|task| task.parent.is_some())
                .count(),
            starts: steps(|step| matches!(step, Step::Start { .. })),
            zombies: evidence.zombies().len(),
            late: steps(|step| matches!(step, Step::Late { .. })),
            rescued: rows("crashed"),
            retries: rows("failed"),
            cancels: calls()
                .filter(|call| matches!(call.answer, Answer::Cancelled(_) | Answer::CancelTaken))
                .count(),
            resumed: steps(|step| matches!(step, Step::Start { resumed: 1.., .. })),
            parents: evidence
                .tasks()
                .iter()
                .filter(|task| task.task_type == "fan")
                .count(),
            wide_parents: evidence
                .tasks()
                .iter()
                .filter(|task| task.children_total == WIDE)
                .count(),
            unknown: calls()
                .filter(|call| matches!(call.answer, Answer::Unknown(_)))
                .count(),
            strays: rows("handed_back"),
            after_kills_ms: evidence.after_kills_ms(),
            after_lone_kills_ms: evidence.after_lone_kills_ms(),
            after_outages_ms: evidence.after_outages_ms(),
            without_broker_ms: evidence.without_broker_ms(),
            after_broker_ms: evidence.after_broker_ms(),
            kills: done(|fault| *fault == Fault::Kill),
            freezes: done(|fault| *fault == Fault::Freeze),
            declared_dead: done(|fault| *fault == Fault::DeclareDead),
            server_kills: done(|fault| fault.is_of_database(ServerFault::Kill)),
            server_stops: done(|fault| fault.is_of_database(ServerFault::Freeze)),
            partitions: done(|fault| matches!(fault, Fault::Partition(_))),
            faults,
            ..Self::default()
        }
    }

    /// What happened too rarely. Such a run proves nothing.
    pub(crate) fn trivial(&self, wanted: &Wanted) -> Vec<String> {
        let rows = [
            ("kills", self.kills, wanted.kills),
            ("freezes", self.freezes, wanted.freezes),
            ("server kills", self.server_kills, wanted.server_kills),
            ("server freezes", self.server_stops, wanted.server_stops),
            ("zombies", self.zombies, wanted.zombies),
            ("rescued attempts", self.rescued, wanted.rescued),
            ("retries", self.retries, wanted.retries),
            ("cancels", self.cancels, wanted.cancels),
            ("resumed attempts", self.resumed, wanted.resumed),
            ("parents", self.parents, wanted.parents),
            (
                "parents with 100 children",
                self.wide_parents,
                wanted.wide_parents,
            ),
            ("unknown answers", self.unknown, wanted.unknown),
            ("partitions", self.partitions, wanted.partitions),
        ];

        let rows = rows
            .map(|(what, found, wanted)| (what.to_owned(), found, wanted))
            .into_iter();
        let each = self
            .faults
            .iter()
            .map(|(kind, found)| (format!("{kind:?}"), *found, wanted.each_fault));
        let short = rows.chain(each).filter(|(_, found, wanted)| found < wanted);

        short
            .map(|(what, found, wanted)| format!("{found} {what}, at least {wanted} are required"))
            .collect()
    }
}

/// The table and the line of figures.
#[expect(clippy::too_many_lines, reason = "one table, a row after the other")]
pub(crate) fn text(
    run: &Run<'_>,
    figures: &Figures,
    findings: &[Finding],
    trivial: &[String],
) -> String {
    let mut text = String::new();
    let count = |promise: Promise| {
        findings
            .iter()
            .filter(|finding| finding.promise == promise)
            .count()
    };

    for promise in Promise::ALL {
        let broken = count(promise);
        let verdict = if broken == 0 {
            "ok".to_owned()
        } else {
            format!("{broken} broken")
        };
        let _ = writeln!(text, "  {:<44} {verdict:>16}", promise.text());
    }

    let f = figures;
    for (what, figure) in [
        ("tasks, children", format!("{}, {}", f.tasks, f.children)),
        (
            "attempts that started, rescued",
            format!("{}, {}", f.starts, f.rescued),
        ),
        (
            "retries, cancels, resumed",
            format!("{}, {}, {}", f.retries, f.cancels, f.resumed),
        ),
        (
            "parents, those with 100 children",
            format!("{}, {}", f.parents, f.wide_parents),
        ),
        (
            "zombies, their late reports",
            format!("{}, {}", f.zombies, f.late),
        ),
        (
            "requests without answer, strays",
            format!("{}, {}", f.unknown, f.strays),
        ),
        (
            "nodes declared dead, unexpected exits",
            format!("{}, {}", f.declared_dead, f.unexpected_exits),
        ),
        (
            "ms from kill to next claim: p50, p99, max",
            quantiles(&f.after_kills_ms),
        ),
        (
            "the same while all other nodes were healthy",
            quantiles(&f.after_lone_kills_ms),
        ),
        (
            "ms from database's return to next claim",
            quantiles(&f.after_outages_ms),
        ),
        (
            "ms from broker's death to flow",
            quantiles(&f.without_broker_ms),
        ),
        (
            "ms from broker's return to flow",
            quantiles(&f.after_broker_ms),
        ),
    ] {
        let _ = writeln!(text, "  {what:<44} {figure:>16}");
    }

    for (kind, times) in &f.faults {
        let _ = writeln!(text, "  {:<44} {times:>16}", format!("{kind:?}"));
    }

    for missing in trivial {
        let _ = writeln!(text, "  trivial: {missing}");
    }

    let parents = match count(Promise::Parents) {
        0 => "ok".to_owned(),
        broken => broken.to_string(),
    };
    let verdict = match (findings.is_empty(), trivial.is_empty()) {
        (true, true) => "ok",
        (true, false) => "trivial",
        (false, _) => "broken",
    };

    let _ = write!(
        text,
        "torture {}store={} tasks={} seed={} lost={} twice={} zombies={} zombie_writes={} stuck={} \
         parents={parents} broken={} kills={} stops={} server_kills={} server_stops={} \
         partitions={} seconds={:.0} verdict={verdict}",
        if run.is_fleet { "fleet " } else { "" },
        run.store.name(),
        run.tasks,
        run.seed,
        count(Promise::Present),
        count(Promise::OneEnd),
        f.zombies,
        count(Promise::NoZombieWrite),
        count(Promise::NothingStuck),
        findings.len(),
        f.kills,
        f.freezes,
        f.server_kills,
        f.server_stops,
        f.partitions,
        f.seconds,
    );

    text
}

/// The median, the 99th percentile and the maximum of sorted times.
fn quantiles(times: &[i64]) -> String {
    if times.is_empty() {
        return "none".to_owned();
    }

    let at = |share: f64| times[((times.len() as f64 * share).ceil() as usize).saturating_sub(1)];
    format!("{}, {}, {} of {}", at(0.5), at(0.99), at(1.0), times.len())
}

/// The options of a run that the report shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) store: Store,
    pub(crate) is_fleet: bool,
    pub(crate) tasks: usize,
    pub(crate) seed: &'a u64,
}

/// Shows the progress of a run: a bar on a terminal, otherwise a line every ten seconds.
#[derive(Debug)]
pub(crate) struct Progress {
    is_terminal: bool,
    shown: Option<tokio::time::Instant>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            shown: None,
        }
    }

    pub(crate) fn show(&mut self, done: usize, all: usize, text: &str) {
        const WIDTH: usize = 24;
        let filled = done * WIDTH / all.max(1);
        if self.is_terminal {
            let bar = "#".repeat(filled);
            let rest = ".".repeat(WIDTH.saturating_sub(filled));
            eprint!("\r[{bar}{rest}] {done}/{all} {text}\u{1b}[K");
            let _ = std::io::stderr().flush();
        } else if self
            .shown
            .is_none_or(|at| at.elapsed() > Duration::from_secs(10))
        {
            eprintln!("torture: {done}/{all} {text}");
            self.shown = Some(tokio::time::Instant::now());
        }
    }

    pub(crate) fn end(&self) {
        if self.is_terminal {
            eprintln!();
        }
    }
}
