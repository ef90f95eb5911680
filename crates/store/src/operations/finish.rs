//! Finish: the ends of many attempts, with results, history, parents and messages in one transaction.

use std::collections::HashSet;

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, Json, Status, TaskId, Timestamp, bounds,
    contract::store::{Outcome, Report, Verdict},
    lifecycle::{Refusal, Transition, cancel, fail, finish, hand_back, snooze},
    task::Task,
};

use crate::{
    failure::Failure,
    ledger::Ledger,
    operations::cancel::cancel_below,
    portions::portions,
    session::{Completion, Operation, Session},
};

/// Decides how attempts ended on locked rows; the answer has one verdict for each report.
#[derive(Debug)]
pub(crate) struct FinishTasks {
    pub(crate) reports: Vec<Report>,
}

/// Refuses reports that no store could keep.
pub(crate) fn check(reports: &[Report]) -> Result<(), Invalid> {
    bounds::check_batch("reports", reports.len(), bounds::CLAIM_BATCH)?;
    reports.iter().try_for_each(|report| match &report.outcome {
        Outcome::Completed {
            result_url: Some(url),
            ..
        } => bounds::check_text("resultUrl", url, bounds::URL_BYTES),
        Outcome::Failed {
            retry_in_ms: Some(ms),
            ..
        } => bounds::check_duration_ms("retryIn", *ms),
        Outcome::Snoozed { delay_ms, .. } => bounds::check_duration_ms("delay", *delay_ms),
        Outcome::Completed { .. }
        | Outcome::Failed { .. }
        | Outcome::HandedBack
        | Outcome::Cancelled => Ok(()),
    })
}

/// Ends the plain successes among the reports with one statement; the answer names the tasks that were ended.
#[derive(Debug)]
pub(crate) struct CompleteTasks {
    pub(crate) reports: Vec<Report>,
}

#[async_trait]
impl Operation for CompleteTasks {
    type Output = HashSet<TaskId>;

    async fn run(&self, session: &mut dyn Session) -> Result<HashSet<TaskId>, Failure> {
        // A second report on a task must see what the first did, so only the first of each takes the short way.
        let mut named = HashSet::with_capacity(self.reports.len());
        let plain: Vec<Completion<'_>> = self
            .reports
            .iter()
            .filter(|report| named.insert(report.lease.task_id))
            .filter_map(completion)
            .collect();
        let mut ended = HashSet::with_capacity(plain.len());
        for portion in portions(&plain, |done| 200 + done.result.map_or(0, str::len)) {
            ended.extend(session.complete_tasks(portion).await?);
        }
        Ok(ended)
    }
}

/// Gives the verdict on what took the short way, and the places of the reports that must take the longer one.
pub(crate) fn settle(reports: &[Report], mut ended: HashSet<TaskId>) -> (Vec<Verdict>, Vec<usize>) {
    let mut verdicts = vec![Verdict::Missing; reports.len()];
    let mut rest = Vec::new();
    for (index, report) in reports.iter().enumerate() {
        match ended.remove(&report.lease.task_id) {
            true => verdicts[index] = Verdict::Applied(Status::Completed),
            false => rest.push(index),
        }
    }
    (verdicts, rest)
}

#[async_trait]
impl Operation for FinishTasks {
    type Output = Vec<Verdict>;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<Verdict>, Failure> {
        let mut ledger = Ledger::default();
        ledger
            .lock(
                session,
                self.reports.iter().map(|report| report.lease.task_id),
            )
            .await?;
        let now = session.now().await?;
        let mut verdicts = Vec::with_capacity(self.reports.len());
        for report in &self.reports {
            verdicts.push(decide_one(session, &mut ledger, report, now).await?);
        }
        ledger.save(session, now).await?;
        Ok(verdicts)
    }
}

async fn decide_one(
    session: &mut dyn Session,
    ledger: &mut Ledger,
    report: &Report,
    now: Timestamp,
) -> Result<Verdict, Failure> {
    // Reports count in their order: a child's end earlier in the batch is known to its parent here.
    ledger.count_children(session, report.lease.task_id, now)?;
    let Some(task) = ledger.get(report.lease.task_id) else {
        return Ok(Verdict::Missing);
    };
    let (task_id, open) = (task.id, task.children.open());
    let transition = match decide(task, report, now) {
        Ok(transition) => transition,
        Err(refusal) => return Ok(verdict(task, &refusal)),
    };
    let status = transition.after.status;
    ledger.record(session, transition);
    if status == Status::Cancelled && open > 0 {
        cancel_below(session, ledger, &[task_id], now).await?;
    }
    Ok(Verdict::Applied(status))
}

fn completion(report: &Report) -> Option<Completion<'_>> {
    match &report.outcome {
        Outcome::Completed { result, result_url } => Some(Completion {
            lease: report.lease,
            result: result.as_ref().map(Json::as_str),
            result_url: result_url.as_deref(),
        }),
        Outcome::Failed { .. }
        | Outcome::Snoozed { .. }
        | Outcome::HandedBack
        | Outcome::Cancelled => None,
    }
}

fn decide(task: &Task, report: &Report, now: Timestamp) -> Result<Transition, Refusal> {
    let lease = &report.lease;
    match &report.outcome {
        Outcome::Completed { result, result_url } => {
            finish::decide(task, lease, result.clone(), result_url.clone(), now)
        }
        Outcome::Failed {
            failure,
            retry_in_ms,
        } => fail::decide(
            task,
            lease,
            failure.at(now, lease.attempt),
            *retry_in_ms,
            now,
        ),
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
