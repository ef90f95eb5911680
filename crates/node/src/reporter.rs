//! The reporter: delivers the ends of attempts. One delivery takes all reports that have come while
//! the last one was under way.

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    StoreError,
    contract::store::{AttemptEnd, Failure, Verdict},
};
use longhaul_engine::commands::finish::EndedAttempt;
use longhaul_sdk::random;

use crate::{
    deadlines::{WRITE_TIMEOUT, within},
    executor, hooks,
    node::Node,
};

/// Reports in one delivery.
const BATCH: usize = 500;
/// The wait after a delivery that failed. It doubles each time, up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Runs until the node closes.
pub(crate) async fn run(node: Arc<Node>) {
    let mut wait = FIRST_WAIT;
    loop {
        // Both under one lock: taking the reports ends the crowding.
        let (was_crowded, reports) = {
            let mut in_flight = node.in_flight();
            (in_flight.is_crowded(), in_flight.next_reports(BATCH))
        };
        if reports.is_empty() {
            // In this order: a node that closes delivers the last reports first.
            tokio::select! {
                biased;
                () = node.wakeups.wait_for_report() => continue,
                () = node.shutdown.closing.cancelled() => return,
            }
        }

        match deliver(&node, reports).await {
            Ok(()) => {
                wait = FIRST_WAIT;
                if was_crowded {
                    node.wakeups.notify_slot();
                }
            }
            Err(error) => {
                tracing::warn!(%error, "reports could not be delivered; retrying");
                // A close does not wait for a store that does not answer.
                tokio::select! {
                    () = tokio::time::sleep(wait.mul_f64(0.5 + random::unit())) => {}
                    () = node.shutdown.closing.cancelled() => return,
                }
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }
}

/// Delivers all waiting reports. A report that could not be delivered waits for the next time.
pub(crate) async fn deliver_all(node: &Node) -> Result<(), StoreError> {
    while node.in_flight().waiting_reports() > 0 {
        let reports = node.in_flight().next_reports(BATCH);
        deliver(node, reports).await?;
    }

    Ok(())
}

/// Delivers these reports. Those that the store has not answered wait again.
async fn deliver(node: &Node, reports: Vec<EndedAttempt>) -> Result<(), StoreError> {
    match finish(node, &reports).await {
        Ok(verdicts) => {
            settle(node, &reports, &verdicts).await;
            Ok(())
        }
        Err(error) if error.is_transient() => {
            node.in_flight().undelivered(reports);
            Err(error)
        }
        // The store may refuse one of them, which must not hold up the others.
        Err(_) => deliver_one_by_one(node, reports).await,
    }
}

async fn finish(node: &Node, reports: &[EndedAttempt]) -> Result<Vec<Verdict>, StoreError> {
    within(WRITE_TIMEOUT, node.engine().finish(reports)).await
}

/// The store has answered these reports: their tasks are no longer in flight, and their hooks are
/// called.
async fn settle(node: &Node, reports: &[EndedAttempt], verdicts: &[Verdict]) {
    // First, because these leases need no heartbeat any more. What follows may take long.
    node.in_flight().delivered(reports);

    for (ended, verdict) in reports.iter().zip(verdicts) {
        if ended.has_output && has_ended_task(verdict) {
            executor::end_output(node, &ended.report.lease).await;
        }
    }

    hooks::call_for_ends(node, reports, verdicts).await;
}

const fn has_ended_task(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Applied(status) | Verdict::Repeated(status) => status.is_ended(),
        Verdict::Stale(_) | Verdict::Missing => false,
    }
}

async fn deliver_one_by_one(node: &Node, reports: Vec<EndedAttempt>) -> Result<(), StoreError> {
    let mut reports = reports.into_iter();
    let mut undelivered = Vec::new();
    let mut result = Ok(());

    for mut report in reports.by_ref() {
        let Err(error) = deliver_one(node, &mut report).await else {
            continue;
        };

        undelivered.push(report);
        let is_transient = error.is_transient();
        result = Err(error);
        if is_transient {
            break;
        }
    }

    undelivered.extend(reports);
    node.in_flight().undelivered(undelivered);
    result
}

/// Delivers one report. A report that can never be stored becomes a failure with the reason. After
/// any other error the report stays as it is.
async fn deliver_one(node: &Node, report: &mut EndedAttempt) -> Result<(), StoreError> {
    let mut answer = finish(node, std::slice::from_ref(report)).await;

    if let Err(StoreError::Invalid(error)) = &answer {
        let task_id = report.report.lease.task_id.0;
        tracing::error!(%error, %task_id, "report was refused; the attempt is reported as failed");
        report.report.end = AttemptEnd::Failed {
            failure: Failure {
                class: "invalid_result".to_owned(),
                message: format!("the end of the attempt could not be stored: {error}"),
                detail: None,
            },
            retry_in_ms: None,
        };
        answer = finish(node, std::slice::from_ref(report)).await;
    }

    settle(node, std::slice::from_ref(report), &answer?).await;
    Ok(())
}
