//! Finish: ends many attempts. Results, history, parents and messages share one transaction.

use std::collections::HashSet;

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, Json, Status, StoreError, TaskId, Timestamp, bounds,
    contract::store::{AttemptEnd, AttemptReport, Verdict},
    event::EventKind,
    lifecycle::{Refusal, Transition, cancel, fail, finish, hand_back, snooze},
    task::TaskRecord,
};

use crate::{
    database::Database,
    effects::TransactionEffects,
    operations::cancel::cancel_below,
    session::{Completion, Mode, Operation, Session},
    split_by_bytes::split_by_bytes,
    sql_error::SqlError,
};

/// Finishes attempts: plain successes in one statement, the rest one by one in a transaction.
pub(crate) async fn finish_tasks(
    database: &Database,
    reports: &[AttemptReport],
) -> Result<Vec<Verdict>, StoreError> {
    check(reports)?;
    if reports.is_empty() {
        return Ok(Vec::new());
    }

    let deadline = database.deadline();
    // Only the slow path writes messages about completed tasks.
    let events = &database.shared().outbox().events;
    let ended = match events.selects_some(EventKind::Completed) {
        true => HashSet::new(),
        false => {
            let reports = reports.to_vec();
            database.run(deadline, CompleteTasks { reports }).await?
        }
    };

    let (mut verdicts, rest) = settle(reports, ended);
    if rest.is_empty() {
        return Ok(verdicts);
    }

    let left = rest.iter().map(|index| reports[*index].clone());
    let operation = FinishTasks {
        reports: left.collect(),
    };
    let decided = database.run(deadline, operation).await?;
    for (index, verdict) in rest.into_iter().zip(decided) {
        verdicts[index] = verdict;
    }

    Ok(verdicts)
}

/// Refuses reports that no store can keep.
fn check(reports: &[AttemptReport]) -> Result<(), Invalid> {
    bounds::check_batch("reports", reports.len(), bounds::CLAIM_BATCH)?;

    reports.iter().try_for_each(|report| match &report.end {
        AttemptEnd::Completed {
            result_url: Some(url),
            ..
        } => bounds::check_text("resultUrl", url, bounds::URL_BYTES),
        AttemptEnd::Failed {
            retry_in_ms: Some(ms),
            ..
        } => bounds::check_duration_ms("retryIn", *ms),
        AttemptEnd::Snoozed { delay_ms, .. } => bounds::check_duration_ms("delay", *delay_ms),
        AttemptEnd::Completed { .. }
        | AttemptEnd::Failed { .. }
        | AttemptEnd::HandedBack
        | AttemptEnd::Cancelled => Ok(()),
    })
}

/// Ends the plain successes with one statement. Answers with the ended tasks.
#[derive(Debug)]
struct CompleteTasks {
    reports: Vec<AttemptReport>,
}

#[async_trait]
impl Operation for CompleteTasks {
    type Output = HashSet<TaskId>;
    const MODE: Mode = Mode::OneStatement;

    async fn run(&self, session: &mut dyn Session) -> Result<HashSet<TaskId>, SqlError> {
        // A second report on a task must see the first. Only the first report of each task takes
        // the fast path.
        let mut named = HashSet::with_capacity(self.reports.len());
        let plain: Vec<Completion<'_>> = self
            .reports
            .iter()
            .filter(|report| named.insert(report.lease.task_id))
            .filter_map(completion)
            .collect();

        let mut ended = HashSet::with_capacity(plain.len());
        for chunk in split_by_bytes(&plain, |done| 200 + done.result.map_or(0, str::len)) {
            ended.extend(session.complete_tasks(chunk).await?);
        }

        Ok(ended)
    }
}

/// Splits the reports: verdicts of the fast path, and the indexes left for the slow path.
fn settle(reports: &[AttemptReport], mut ended: HashSet<TaskId>) -> (Vec<Verdict>, Vec<usize>) {
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

/// Decides the end of attempts on locked rows. Answers with one verdict per report.
#[derive(Debug)]
struct FinishTasks {
    reports: Vec<AttemptReport>,
}

#[async_trait]
impl Operation for FinishTasks {
    type Output = Vec<Verdict>;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<Verdict>, SqlError> {
        let mut effects = TransactionEffects::default();
        // Locked until commit: no other writer can end these attempts in between.
        effects
            .lock(
                session,
                self.reports.iter().map(|report| report.lease.task_id),
            )
            .await?;

        let now = session.now().await?;
        let mut verdicts = Vec::with_capacity(self.reports.len());
        for report in &self.reports {
            verdicts.push(decide_one(session, &mut effects, report, now).await?);
        }

        effects.save(session, now).await?;
        Ok(verdicts)
    }
}

async fn decide_one(
    session: &mut dyn Session,
    effects: &mut TransactionEffects,
    report: &AttemptReport,
    now: Timestamp,
) -> Result<Verdict, SqlError> {
    // Reports apply in order: a parent here must see a child's end from earlier in the batch.
    effects.count_children(session, report.lease.task_id, now)?;
    let Some(task) = effects.get(report.lease.task_id) else {
        return Ok(Verdict::Missing);
    };

    let task_id = task.id;
    let open = task.children.open();
    let transition = match decide(task, report, now) {
        Ok(transition) => transition,
        Err(refusal) => return Ok(verdict(task, &refusal)),
    };

    let status = transition.after.status;
    effects.record(session, transition);
    // A cancelled parent takes its open children with it.
    if status == Status::Cancelled && open > 0 {
        cancel_below(session, effects, &[task_id], now).await?;
    }

    Ok(Verdict::Applied(status))
}

fn completion(report: &AttemptReport) -> Option<Completion<'_>> {
    match &report.end {
        AttemptEnd::Completed { result, result_url } => Some(Completion {
            lease: report.lease,
            result: result.as_ref().map(Json::as_str),
            result_url: result_url.as_deref(),
        }),
        AttemptEnd::Failed { .. }
        | AttemptEnd::Snoozed { .. }
        | AttemptEnd::HandedBack
        | AttemptEnd::Cancelled => None,
    }
}

fn decide(
    task: &TaskRecord,
    report: &AttemptReport,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    let lease = &report.lease;

    match &report.end {
        AttemptEnd::Completed { result, result_url } => {
            finish::decide(task, lease, result.clone(), result_url.clone(), now)
        }
        AttemptEnd::Failed {
            failure,
            retry_in_ms,
        } => fail::decide(
            task,
            lease,
            failure.at(now, lease.attempt),
            *retry_in_ms,
            now,
        ),
        AttemptEnd::Snoozed { reason, delay_ms } => {
            let reason = reason.as_ref().map(|reason| reason.at(now, lease.attempt));
            snooze::decide(task, lease, reason, *delay_ms, now)
        }
        AttemptEnd::HandedBack => hand_back::decide(task, lease, now),
        AttemptEnd::Cancelled => cancel::decide_by_handler(task, lease, now),
    }
}

/// The verdict on a refused write.
pub(crate) fn verdict(task: &TaskRecord, refusal: &Refusal) -> Verdict {
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
