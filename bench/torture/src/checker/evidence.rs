//! The evidence, indexed for the rules.

use std::collections::{BTreeMap, HashMap};

use longhaul_domain::Status;
use uuid::Uuid;

use crate::{
    dump::{AttemptRow, Dump, TaskRow},
    fault::{Deed, Fault},
    history::Story,
    journal::{End, Line, Step},
    settings::LEASE,
    tasks::{Made, Work},
};

/// In microseconds.
const SECOND: i64 = 1_000_000;
/// Tasks of a second from which on half of them says something.
const ENOUGH: usize = 10;

/// One line of a worker's file, with the process that wrote it.
#[derive(Debug, Clone)]
pub(crate) struct Sighting {
    pub(crate) incarnation: String,
    pub(crate) line: Line,
}

/// Everything that is known about a run.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) stories: Vec<Story>,
    pub(crate) deeds: Vec<Deed>,
    /// Lines in which worker processes say that they panicked.
    pub(crate) panics: Vec<String>,
    pub(crate) dump: Dump,
    sightings: HashMap<Uuid, Vec<Sighting>>,
    history: HashMap<Uuid, BTreeMap<u32, Vec<AttemptRow>>>,
    by_id: HashMap<Uuid, usize>,
}

impl Evidence {
    pub(crate) fn new(
        stories: Vec<Story>,
        deeds: Vec<Deed>,
        sightings: Vec<Sighting>,
        dump: Dump,
    ) -> Self {
        let mut evidence = Self {
            stories,
            deeds,
            dump,
            ..Self::default()
        };
        for sighting in sightings {
            evidence
                .sightings
                .entry(sighting.line.task)
                .or_default()
                .push(sighting);
        }
        for row in evidence.dump.attempts.clone() {
            evidence
                .history
                .entry(row.task)
                .or_default()
                .entry(row.attempt)
                .or_default()
                .push(row);
        }
        evidence.by_id = evidence
            .dump
            .tasks
            .iter()
            .enumerate()
            .map(|(index, task)| (task.id, index))
            .collect();
        evidence
    }

    pub(crate) fn tasks(&self) -> &[TaskRow] {
        &self.dump.tasks
    }

    pub(crate) fn task(&self, id: Uuid) -> Option<&TaskRow> {
        self.by_id.get(&id).map(|index| &self.dump.tasks[*index])
    }

    /// What workers wrote about a task, process by process.
    pub(crate) fn sightings(&self, id: Uuid) -> &[Sighting] {
        self.sightings.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn all_sightings(&self) -> impl Iterator<Item = &Sighting> {
        self.sightings.values().flatten()
    }

    /// The tasks that workers wrote about.
    pub(crate) fn seen_tasks(&self) -> impl Iterator<Item = Uuid> {
        self.sightings.keys().copied()
    }

    /// What workers wrote about one attempt.
    pub(crate) fn of_attempt(&self, id: Uuid, attempt: u32) -> impl Iterator<Item = &Sighting> {
        self.sightings(id)
            .iter()
            .filter(move |sighting| sighting.line.attempt == attempt)
    }

    /// How the handler of an attempt ended, by its worker's file.
    pub(crate) fn finish(&self, id: Uuid, attempt: u32) -> Option<(i64, End, Option<&Made>)> {
        self.of_attempt(id, attempt)
            .find_map(|sighting| match &sighting.line.step {
                Step::Finish { end, made } => Some((sighting.line.at, *end, made.as_ref())),
                Step::Start { .. } | Step::Try { .. } | Step::Saved { .. } | Step::Late { .. } => {
                    None
                }
            })
    }

    /// The rows of the task's history, by attempt.
    pub(crate) fn archived(&self, id: Uuid) -> impl Iterator<Item = &AttemptRow> {
        self.history
            .get(&id)
            .into_iter()
            .flat_map(BTreeMap::values)
            .flatten()
    }

    /// All attempts of a task as one list: the history, and the last one as the task's own row tells it.
    pub(crate) fn attempts(&self, task: &TaskRow) -> Vec<AttemptRow> {
        let mut attempts: Vec<AttemptRow> = self.archived(task.id).cloned().collect();
        let is_archived = attempts.iter().any(|row| row.attempt == task.attempt);
        let is_open = matches!(
            task.status,
            Status::Queued | Status::Retrying | Status::Waiting
        );
        if task.attempt > 0 && !is_archived && !is_open {
            let outcome = match task.status {
                Status::Completed | Status::CompletedWithErrors => "completed",
                Status::Cancelled => "cancelled",
                Status::Running => "running",
                Status::Failed
                | Status::DeadLetter
                | Status::Queued
                | Status::Retrying
                | Status::Waiting => "failed",
            };
            attempts.push(AttemptRow {
                task: task.id,
                node: task.node,
                attempt: task.attempt,
                outcome: outcome.to_owned(),
                started_at: task.last_attempt_at,
                ended_at: task.finished_at,
                error: task.error.clone(),
            });
        }
        attempts
    }

    /// Attempts that were taken away from a worker which then came to its end all the same.
    pub(crate) fn zombies(&self) -> Vec<(Uuid, u32)> {
        let was_taken =
            |row: &&AttemptRow| matches!(row.outcome.as_str(), "crashed" | "handed_back");
        let taken = self.dump.attempts.iter().filter(was_taken);
        let ended_later = |row: &&AttemptRow| {
            let finish = self.finish(row.task, row.attempt).map(|(at, _, _)| at);
            finish
                .zip(row.ended_at)
                .is_some_and(|(finish, ended)| finish > ended)
        };
        taken
            .filter(ended_later)
            .map(|row| (row.task, row.attempt))
            .collect()
    }

    /// Times from the kill of a process until the first of its tasks was claimed again, in milliseconds: the others are
    /// rescued with it, and then wait for a slot. Those that fell into an outage of the server tell of the outage, and
    /// are left out.
    pub(crate) fn after_kills_ms(&self) -> Vec<i64> {
        milliseconds(
            self.deaths()
                .into_iter()
                .map(|(died, claimed)| claimed - died),
        )
    }

    /// Those of them while all other nodes were well: none killed, frozen or cut off from the database. A node that holds
    /// the rescuer's duty and cannot do it costs the others its lease first.
    pub(crate) fn after_lone_kills_ms(&self) -> Vec<i64> {
        let lease = i64::try_from(LEASE.as_micros()).unwrap_or(i64::MAX);
        let ill = |deed: &Deed| match deed.fault {
            Fault::Kill | Fault::Disown => Some((deed.at, deed.at + lease)),
            Fault::Partition(server) if !server.is_database() => None,
            Fault::Freeze | Fault::Partition(_) => {
                let meant = deed.at + i64::try_from(deed.ms).unwrap_or(0) * 1_000;
                Some((deed.at, deed.over.unwrap_or(meant)))
            }
            Fault::Server(..) => None,
        };
        let is_lone = |(died, claimed): &(i64, i64)| {
            !self
                .deeds
                .iter()
                .filter_map(ill)
                .any(|(from, to)| from != *died && from < *claimed && to > *died)
        };
        milliseconds(
            self.deaths()
                .into_iter()
                .filter(is_lone)
                .map(|(died, claimed)| claimed - died),
        )
    }

    /// When processes were killed, and when the first of their tasks was claimed again.
    fn deaths(&self) -> Vec<(i64, i64)> {
        let kills = self.deeds.iter().filter(|deed| deed.fault == Fault::Kill);
        let kills: HashMap<&str, i64> = kills
            .filter_map(|deed| Some((deed.incarnation.as_deref()?, deed.at)))
            .collect();
        let mut first: HashMap<&str, (i64, i64)> = HashMap::new();
        for row in self
            .dump
            .attempts
            .iter()
            .filter(|row| row.outcome == "crashed")
        {
            let Some(start) = self.of_attempt(row.task, row.attempt).next() else {
                continue;
            };
            // What was taken away while the process still lived is another story.
            let died = kills
                .get(start.incarnation.as_str())
                .copied()
                .filter(|died| row.ended_at > Some(*died));
            let Some((died, claimed)) = died.zip(self.next_claim(row)) else {
                continue;
            };
            let entry = first.entry(&start.incarnation).or_insert((died, claimed));
            entry.1 = entry.1.min(claimed);
        }
        let is_free = |(died, claimed): &(i64, i64)| {
            !self
                .outages()
                .any(|(from, to)| from < *claimed && to > *died)
        };
        first.into_values().filter(is_free).collect()
    }

    /// When the attempt after this one began.
    fn next_claim(&self, row: &AttemptRow) -> Option<i64> {
        let attempts = self.task(row.task).map(|task| self.attempts(task))?;
        attempts
            .into_iter()
            .find(|next| next.attempt == row.attempt + 1)?
            .started_at
    }

    /// Times from the moment at which the database answered again to the next claim, in milliseconds.
    pub(crate) fn after_outages_ms(&self) -> Vec<i64> {
        let started = self.tasks().iter().filter_map(|task| task.last_attempt_at);
        let mut claims: Vec<i64> = started
            .chain(self.dump.attempts.iter().filter_map(|row| row.started_at))
            .collect();
        claims.sort_unstable();
        let next = |over: i64| {
            claims
                .get(claims.partition_point(|claim| *claim < over))
                .map(|claim| claim - over)
        };
        milliseconds(self.outages().filter_map(|(_, over)| next(over)))
    }

    /// Times from the moment at which the broker went away until tasks flowed without it, in milliseconds: from then on
    /// nodes look into the store.
    pub(crate) fn without_broker_ms(&self) -> Vec<i64> {
        self.until_flowing_ms(self.broker_outages().map(|(from, _)| from))
    }

    /// The same from the moment at which it was back.
    pub(crate) fn after_broker_ms(&self) -> Vec<i64> {
        self.until_flowing_ms(self.broker_outages().map(|(_, over)| over))
    }

    /// From each of the moments until half of the tasks had been claimed that were submitted in the second after it and
    /// were due at once: a single one may have been lucky. A moment at which the database was away tells nothing, nor
    /// does one at which hardly anything was submitted.
    fn until_flowing_ms(&self, moments: impl Iterator<Item = i64>) -> Vec<i64> {
        let is_plain = |task: &&TaskRow| task.parent.is_none() && task.due_at <= task.created_at;
        let mut flow: Vec<(i64, i64)> = self
            .tasks()
            .iter()
            .filter(is_plain)
            .filter_map(|task| Some((task.created_at, task.started_at?)))
            .collect();
        flow.sort_unstable();
        let until_half = |moment: i64| {
            let before = |time: i64| flow.partition_point(|(created, _)| *created < time);
            let mut claims: Vec<i64> = flow[before(moment)..before(moment + SECOND)]
                .iter()
                .map(|task| task.1)
                .collect();
            claims.sort_unstable();
            let half = *claims
                .get(claims.len() / 2)
                .filter(|_| claims.len() >= ENOUGH)?;
            let is_free = !self.outages().any(|(from, to)| from < half && to > moment);
            is_free.then_some(half - moment)
        };
        milliseconds(moments.filter_map(until_half))
    }

    /// When the database was away, from and to.
    fn outages(&self) -> impl Iterator<Item = (i64, i64)> {
        self.deeds
            .iter()
            .filter(|deed| deed.fault.stops_the_database())
            .filter_map(|deed| Some((deed.at, deed.over?)))
    }

    fn broker_outages(&self) -> impl Iterator<Item = (i64, i64)> {
        self.deeds
            .iter()
            .filter(|deed| deed.fault.stops_the_broker())
            .filter_map(|deed| Some((deed.at, deed.over?)))
    }
}

/// Microseconds as milliseconds, in order.
fn milliseconds(times: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut times: Vec<i64> = times.map(|time| time / 1_000).collect();
    times.sort_unstable();
    times
}

/// The parameters of a task, which the client or its parent gave it.
pub(crate) fn work(task: &TaskRow) -> Option<Work> {
    serde_json::from_str(&task.parameters).ok()
}

/// The result of a task, signed by the attempt that made it.
pub(crate) fn made(task: &TaskRow) -> Option<Made> {
    serde_json::from_str(task.result.as_deref()?).ok()
}
