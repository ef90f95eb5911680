//! The reporter: delivers the ends of attempts, as many together as have come while the last delivery was under way.

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    StoreError,
    contract::store::{Failure, Outcome as Ending},
};
use longhaul_engine::commands::finish::Ended;

use super::Inner;
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
                    inner.room.notify_one();
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

/// Delivers these reports, or keeps them when the store is away.
async fn deliver(inner: &Inner, reports: Vec<Ended>) -> Result<(), StoreError> {
    match finish(inner, &reports).await {
        Ok(()) => inner.desk().delivered(&reports),
        Err(error) if error.is_transient() => {
            inner.desk().undelivered(reports);
            return Err(error);
        }
        Err(_) => deliver_one_by_one(inner, reports).await,
    }
    Ok(())
}

async fn finish(inner: &Inner, reports: &[Ended]) -> Result<(), StoreError> {
    patience::within(patience::WRITE, inner.engine().finish(reports)).await.map(drop)
}

/// One report that the store refuses must not hold up the others; its task fails with the reason.
async fn deliver_one_by_one(inner: &Inner, reports: Vec<Ended>) {
    let mut reports = reports.into_iter();
    while let Some(mut one) = reports.next() {
        if let Err(error) = finish(inner, std::slice::from_ref(&one)).await {
            tracing::error!(%error, task_id = %one.report.lease.task_id.0, "a report was refused");
            if error.is_transient() {
                return inner.desk().undelivered(std::iter::once(one).chain(reports).collect());
            }
            let message = format!("the end of the attempt could not be stored: {error}");
            let failure = Failure { class: "invalid_result".to_owned(), message, detail: None };
            one.report.outcome = Ending::Failed { failure, retry_in_ms: None };
            if let Err(error) = finish(inner, std::slice::from_ref(&one)).await {
                tracing::error!(%error, "a refused report could not be turned into a failure");
            }
        }
        inner.desk().delivered(std::slice::from_ref(&one));
    }
}
