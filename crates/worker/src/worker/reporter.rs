//! The reporter: delivers the ends of attempts, as many together as have come while the last delivery was under way.

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    StoreError,
    contract::store::{Failure, Outcome as Ending, Verdict},
};
use longhaul_engine::commands::finish::Ended;

use super::{Inner, executor, hooks};
use crate::{patience, random};

/// Reports in one delivery.
const BATCH: usize = 500;
/// The longest rest after a delivery that failed.
const REST: Duration = Duration::from_secs(2);

pub(super) async fn run(inner: Arc<Inner>) {
    let mut rest = Duration::from_millis(20);
    loop {
        let (was_crowded, reports) = {
            let mut desk = inner.desk();
            (desk.is_crowded(), desk.next_reports(BATCH))
        };
        if reports.is_empty() {
            tokio::select! {
                biased;
                () = inner.ended.notified() => continue,
                () = inner.closing.cancelled() => return,
            }
        }
        match deliver(&inner, reports).await {
            Ok(()) => {
                rest = Duration::from_millis(20);
                if was_crowded {
                    inner.room_freed();
                }
            }
            Err(error) => {
                tracing::warn!(%error, "reports could not be delivered and are kept");
                tokio::select! {
                    () = tokio::time::sleep(rest.mul_f64(0.5 + random::unit())) => {}
                    () = inner.closing.cancelled() => return,
                }
                rest = (rest * 2).min(REST);
            }
        }
    }
}

/// Delivers everything that waits. What could not be delivered is kept for the next time.
pub(super) async fn deliver_all(inner: &Inner) -> Result<(), StoreError> {
    while inner.desk().waiting_reports() > 0 {
        let reports = inner.desk().next_reports(BATCH);
        deliver(inner, reports).await?;
    }
    Ok(())
}

/// Delivers these reports. What the store has not answered is kept.
async fn deliver(inner: &Inner, reports: Vec<Ended>) -> Result<(), StoreError> {
    match finish(inner, &reports).await {
        Ok(verdicts) => {
            answered(inner, &reports, &verdicts).await;
            Ok(())
        }
        Err(error) if error.is_transient() => {
            inner.desk().undelivered(reports);
            Err(error)
        }
        // It may be one of them that the store does not take, and must not hold up the others.
        Err(_) => deliver_one_by_one(inner, reports).await,
    }
}

async fn finish(inner: &Inner, reports: &[Ended]) -> Result<Vec<Verdict>, StoreError> {
    patience::within(patience::WRITE, inner.engine().finish(reports)).await
}

/// The tasks are out of our hands, and their hooks may hear of it.
async fn answered(inner: &Inner, reports: &[Ended], verdicts: &[Verdict]) {
    inner.desk().delivered(reports);
    let ends = reports.iter().zip(verdicts);
    for (ended, _) in ends.filter(|(ended, verdict)| ended.has_output && is_end(verdict)) {
        executor::end_output(inner, &ended.report.lease).await;
    }
    hooks::call_for_ends(inner, reports, verdicts).await;
}

const fn is_end(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Applied(status) | Verdict::Repeated(status) if status.is_ended())
}

async fn deliver_one_by_one(inner: &Inner, reports: Vec<Ended>) -> Result<(), StoreError> {
    let (mut reports, mut kept) = (reports.into_iter(), Vec::new());
    let mut trouble = Ok(());
    for mut one in reports.by_ref() {
        if let Err(error) = deliver_one(inner, &mut one).await {
            kept.push(one);
            trouble = Err(error);
            if trouble.as_ref().is_err_and(StoreError::is_transient) {
                break;
            }
        }
    }
    kept.extend(reports);
    inner.desk().undelivered(kept);
    trouble
}

/// A report that can never be stored becomes a failure with the reason. Any other error is not the report's: what the
/// handler made is kept until the store takes it.
async fn deliver_one(inner: &Inner, one: &mut Ended) -> Result<(), StoreError> {
    let mut answer = finish(inner, std::slice::from_ref(one)).await;
    if let Err(StoreError::Invalid(error)) = &answer {
        tracing::error!(%error, task_id = %one.report.lease.task_id.0, "a report was refused");
        let message = format!("the end of the attempt could not be stored: {error}");
        let failure = Failure {
            class: "invalid_result".to_owned(),
            message,
            detail: None,
        };
        one.report.outcome = Ending::Failed {
            failure,
            retry_in_ms: None,
        };
        answer = finish(inner, std::slice::from_ref(one)).await;
    }
    answered(inner, std::slice::from_ref(one), &answer?).await;
    Ok(())
}
