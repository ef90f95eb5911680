//! The evidence, indexed for the rules.

use std::collections::{BTreeMap, HashMap};

use longhaul_domain::Status;
use uuid::Uuid;

use crate::{
    dump::{AttemptRow, Dump, TaskRow},
    fault::{Fault, FaultRecord},
    history::ItemHistory,
    journal::{End, Line, Step},
    settings::LEASE,
    tasks::{SignedResult, Work},
};

/// A second in microseconds.
const SECOND: i64 = 1_000_000;
/// The least number of tasks in a second for a meaningful median.
const ENOUGH: usize = 10;

/// One record of a worker's journal, with its process.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    pub(crate) incarnation: String,
    pub(crate) line: Line,
}

/// Everything that is known about a run.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) histories: Vec<ItemHistory>,
    pub(crate) fault_log: Vec<FaultRecord>,
    /// Log lines of worker processes that report a panic.
    pub(crate) panics: Vec<String>,
    pub(crate) dump: Dump,
    observations: HashMap<Uuid, Vec<Observation>>,
    history: HashMap<Uuid, BTreeMap<u32, Vec<AttemptRow>>>,
    by_id: HashMap<Uuid, usize>,
}

impl Evidence {
    pub(crate) fn new(
        histories: Vec<ItemHistory>,
        fault_log: Vec<FaultRecord>,
        observations: Vec<Observation>,
        dump: Dump,
    ) -> Self {
        let mut evidence = Self {
            histories,
            fault_log,
            dump,
            ..Self::default()
        };

        for observation in observations {
            evidence
                .observations
                .entry(observation.line.task)
                .or_default()
                .push(observation);
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

    /// The journals' records of a task, process by process.
    pub(crate) fn observations(&self, id: Uuid) -> &[Observation] {
        self.observations.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn all_observations(&self) -> impl Iterator<Item = &Observation> {
        self.observations.values().flatten()
    }

    /// The tasks in the journals.
    pub(crate) fn seen_tasks(&self) -> impl Iterator<Item = Uuid> {
        self.observations.keys().copied()
    }

    /// The journals' records of one attempt.
    pub(crate) fn of_attempt(&self, id: Uuid, attempt: u32) -> impl Iterator<Item = &Observation> {
        self.observations(id)
            .iter()
            .filter(move |observation| observation.line.attempt == attempt)
    }

    /// How the handler of an attempt ended, by its worker's journal.
    pub(crate) fn finish(
        &self,
        id: Uuid,
        attempt: u32,
    ) -> Option<(i64, End, Option<&SignedResult>)> {
        self.of_attempt(id, attempt)
            .find_map(|observation| match &observation.line.step {
                Step::Finish { end, made } => Some((observation.line.at, *end, made.as_ref())),
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

    /// All attempts of a task: the history, and the last one from the task's own row.
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

    /// Attempts that were taken away from a worker and ended there later.
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

    /// The times from the kill of a process until the first of its tasks was claimed again, in
    /// milliseconds. The other tasks are rescued with the first and may wait for a slot. Kills
    /// during an outage of the database are left out.
    pub(crate) fn after_kills_ms(&self) -> Vec<i64> {
        let deaths = self.deaths().into_iter();
        milliseconds(deaths.map(|(died, claimed)| claimed - died))
    }

    /// The same times, but only while no other node was killed, frozen or cut off from the
    /// database. Such a node may have the rescuer's maintenance lease, which must expire first.
    pub(crate) fn after_lone_kills_ms(&self) -> Vec<i64> {
        let lease = i64::try_from(LEASE.as_micros()).unwrap_or(i64::MAX);
        let unhealthy = |record: &FaultRecord| match record.fault {
            Fault::Kill | Fault::DeclareDead => Some((record.at, record.at + lease)),
            Fault::Partition(server) if !server.is_database() => None,
            Fault::Freeze | Fault::Partition(_) => {
                let meant = record.at + i64::try_from(record.ms).unwrap_or(0) * 1_000;
                Some((record.at, record.over.unwrap_or(meant)))
            }
            Fault::Server(..) => None,
        };

        let is_lone = |(died, claimed): &(i64, i64)| {
            !self
                .fault_log
                .iter()
                .filter_map(unhealthy)
                .any(|(from, to)| from != *died && from < *claimed && to > *died)
        };

        let lone = self.deaths().into_iter().filter(is_lone);
        milliseconds(lone.map(|(died, claimed)| claimed - died))
    }

    /// When each process was killed, and when the first of its tasks was claimed again.
    fn deaths(&self) -> Vec<(i64, i64)> {
        let kills = self
            .fault_log
            .iter()
            .filter(|record| record.fault == Fault::Kill);
        let kills: HashMap<&str, i64> = kills
            .filter_map(|record| Some((record.incarnation.as_deref()?, record.at)))
            .collect();

        let mut first: HashMap<&str, (i64, i64)> = HashMap::new();
        let attempts = self.dump.attempts.iter();
        for row in attempts.filter(|row| row.outcome == "crashed") {
            let Some(start) = self.of_attempt(row.task, row.attempt).next() else {
                continue;
            };

            // Tasks that were taken away before the kill do not count.
            let killed = kills.get(start.incarnation.as_str()).copied();
            let died = killed.filter(|died| row.ended_at > Some(*died));
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

    /// The start of the next attempt.
    fn next_claim(&self, row: &AttemptRow) -> Option<i64> {
        let attempts = self.task(row.task).map(|task| self.attempts(task))?;
        attempts
            .into_iter()
            .find(|next| next.attempt == row.attempt + 1)?
            .started_at
    }

    /// The times from the return of the database to the next claim, in milliseconds.
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

    /// The times from the loss of the broker until tasks flow without it, in milliseconds.
    pub(crate) fn without_broker_ms(&self) -> Vec<i64> {
        self.until_flowing_ms(self.broker_outages().map(|(from, _)| from))
    }

    /// The times from the return of the broker until tasks flow.
    pub(crate) fn after_broker_ms(&self) -> Vec<i64> {
        self.until_flowing_ms(self.broker_outages().map(|(_, over)| over))
    }

    /// The time from each moment until half of the tasks that were submitted in the second after
    /// it, without delay, had been claimed. Moments during an outage of the database are left out,
    /// and those with few submits.
    fn until_flowing_ms(&self, times: impl Iterator<Item = i64>) -> Vec<i64> {
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
            if claims.len() < ENOUGH {
                return None;
            }

            let half = claims[claims.len() / 2];
            let is_free = !self.outages().any(|(from, to)| from < half && to > moment);

            is_free.then_some(half - moment)
        };

        milliseconds(times.filter_map(until_half))
    }

    /// The outages of the database, from and to.
    fn outages(&self) -> impl Iterator<Item = (i64, i64)> {
        self.fault_log
            .iter()
            .filter(|record| record.fault.stops_the_database())
            .filter_map(|record| Some((record.at, record.over?)))
    }

    fn broker_outages(&self) -> impl Iterator<Item = (i64, i64)> {
        self.fault_log
            .iter()
            .filter(|record| record.fault.stops_the_broker())
            .filter_map(|record| Some((record.at, record.over?)))
    }
}

/// Microseconds as sorted milliseconds.
fn milliseconds(times: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut times: Vec<i64> = times.map(|time| time / 1_000).collect();
    times.sort_unstable();
    times
}

/// The parameters of a task.
pub(crate) fn work(task: &TaskRow) -> Option<Work> {
    serde_json::from_str(&task.parameters).ok()
}

/// The signed result of a task.
pub(crate) fn made(task: &TaskRow) -> Option<SignedResult> {
    serde_json::from_str(task.result.as_deref()?).ok()
}
