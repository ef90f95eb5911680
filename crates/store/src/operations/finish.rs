//! Finish: the ends of many attempts, with results, history, parents and messages in one transaction.

use std::collections::HashSet;

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, Json, Status, TaskId, Timestamp, bounds,
    contract::store::{Outcome, Report, Verdict},
    lifecycle::{Refusal, Transition, cancel, fail, finish, hand_back, snooze},
    statistics::TallySheet,
    task::Task,
};

use crate::{
    failure::Failure,
    ledger::{self, Ledger},
    operations::cancel::cancel_below,
    session::{Completion, Operation, Session},
};

/// Records how attempts ended; the answer has one verdict for each report.
#[derive(Debug)]
pub(crate) struct FinishTasks<'a> {
    pub(crate) reports: &'a [Report],
}

/// Refuses reports that no store could keep.
pub(crate) fn check(reports: &[Report]) -> Result<(), Invalid> {
    bounds::check_batch("reports", reports.len(), bounds::CLAIM_BATCH)?;
    reports.iter().try_for_each(|report| match &report.outcome {
        Outcome::Completed { result_url: Some(url), .. } => bounds::check_text("resultUrl", url, bounds::URL_BYTES),
        Outcome::Failed { retry_in_ms: Some(ms), .. } => bounds::check_duration_ms("retryIn", *ms),
        Outcome::Snoozed { delay_ms, .. } => bounds::check_duration_ms("delay", *delay_ms),
        Outcome::Completed { .. } | Outcome::Failed { .. } | Outcome::HandedBack | Outcome::Cancelled => Ok(()),
    })
}

#[async_trait]
impl Operation for FinishTasks<'_> {
    type Output = Vec<Verdict>;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<Verdict>, Failure> {
        let ended = self.complete(session).await?;
        let mut seen = HashSet::new();
        // A second report on a task that was just ended must see that end, so it takes the longer way.
        let (short, long): (Vec<usize>, Vec<usize>) = (0..self.reports.len()).partition(|index| {
            let id = self.reports[*index].lease.task_id;
            ended.contains(&id) && seen.insert(id)
        });
        let mut verdicts = vec![Verdict::Missing; self.reports.len()];
        for index in short {
            verdicts[index] = Verdict::Applied(Status::Completed);
        }
        self.decide(session, &long, &mut verdicts).await?;
        Ok(verdicts)
    }
}

impl FinishTasks<'_> {
    /// Ends the plain successes with one statement. With a listener on the outbox all take the longer way.
    async fn complete(&self, session: &mut dyn Session) -> Result<HashSet<TaskId>, Failure> {
        let mut named = HashSet::new();
        let plain: Vec<Completion<'_>> =
            self.reports.iter().filter(|report| named.insert(report.lease.task_id)).filter_map(completion).collect();
        if plain.is_empty() || !session.shared().outbox.is_off() {
            return Ok(HashSet::new());
        }
        let completed = session.complete_tasks(&plain).await?;
        let mut sheet = TallySheet::default();
        for task in &completed {
            sheet.count(&task.queue, &task.task_type, Status::Running, -1);
            sheet.count(&task.queue, &task.task_type, Status::Completed, 1);
            sheet.record_end(&task.ending, &task.queue, &task.task_type);
        }
        ledger::insert_tallies(session, &sheet.into_tallies()).await?;
        Ok(completed.into_iter().map(|task| task.task_id).collect())
    }

    /// Decides the rest one by one on locked rows.
    async fn decide(
        &self,
        session: &mut dyn Session,
        indexes: &[usize],
        verdicts: &mut [Verdict],
    ) -> Result<(), Failure> {
        if indexes.is_empty() {
            return Ok(());
        }
        let mut ledger = Ledger::default();
        ledger.lock(session, indexes.iter().map(|index| self.reports[*index].lease.task_id)).await?;
        let now = session.now().await?;
        for index in indexes {
            let report = &self.reports[*index];
            let Some(task) = ledger.get(report.lease.task_id) else { continue };
            let (task_id, children) = (task.id, task.children.open());
            verdicts[*index] = match decide(task, report, now) {
                Ok(transition) => {
                    let status = transition.after.status;
                    ledger.record(session, transition);
                    if status == Status::Cancelled && children > 0 {
                        cancel_below(session, &mut ledger, &[task_id], now).await?;
                    }
                    Verdict::Applied(status)
                }
                Err(refusal) => verdict(task, &refusal),
            };
        }
        ledger.save(session, now).await
    }
}

fn completion(report: &Report) -> Option<Completion<'_>> {
    match &report.outcome {
        Outcome::Completed { result, result_url } => Some(Completion {
            lease: report.lease,
            result: result.as_ref().map(Json::as_str),
            result_url: result_url.as_deref(),
        }),
        Outcome::Failed { .. } | Outcome::Snoozed { .. } | Outcome::HandedBack | Outcome::Cancelled => None,
    }
}

fn decide(task: &Task, report: &Report, now: Timestamp) -> Result<Transition, Refusal> {
    let lease = &report.lease;
    match &report.outcome {
        Outcome::Completed { result, result_url } => {
            finish::decide(task, lease, result.clone(), result_url.clone(), now)
        }
        Outcome::Failed { failure, retry_in_ms } => {
            fail::decide(task, lease, failure.at(now, lease.attempt), *retry_in_ms, now)
        }
        Outcome::Snoozed { reason, delay_ms } => {
            let reason = reason.as_ref().map(|reason| reason.at(now, lease.attempt));
            snooze::decide(task, lease, reason, *delay_ms, now)
        }
        Outcome::HandedBack => hand_back::decide(task, lease, now),
        Outcome::Cancelled => cancel::decide_by_handler(task, lease, now),
    }
}

/// What a worker is told when its write does not count.
pub(crate) fn verdict(task: &Task, refusal: &Refusal) -> Verdict {
    match refusal {
        Refusal::AlreadyApplied { status } => Verdict::Repeated(*status),
        Refusal::WrongState { .. }
        | Refusal::StaleLease { .. }
        | Refusal::NotDue
        | Refusal::NotWaitingForTime { .. }
        | Refusal::NothingToRedo
        | Refusal::TooManyChildren => Verdict::Stale(task.status),
    }
}
