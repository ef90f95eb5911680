//! The heart: renews all leases of the node with one statement, and tells handlers whose attempt no longer counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_domain::{StoreError, bounds};
use longhaul_engine::desk::StopReason;

use super::Inner;
use crate::{patience::within, registry::millis, settings::WorkerSettings};

/// How often, while a claim grows old enough to be a stray, the node looks for tasks that it runs by the store's word
/// but not by its own.
const LOOKS_PER_STRAY_AGE: u32 = 4;

/// How late the heart may be woken before somebody should hear of it.
const LATE: Duration = Duration::from_secs(3);

pub(super) async fn run(inner: Arc<Inner>) {
    let mut looked_for_strays = Instant::now();
    let mut beaten_at = tokio::time::Instant::now();
    let mut looked_at = beaten_at;
    loop {
        let busy = inner.settings.heartbeat;
        let idle_until = beaten_at + inner.settings.idle_heartbeat.max(busy);
        let asleep_since = tokio::time::Instant::now();
        // It looks up as often as a busy node beats: nobody who claims has to wake it.
        tokio::select! {
            () = inner.closing.cancelled() => return,
            () = inner.engine().look_at_leases.notified() => {}
            () = tokio::time::sleep_until(idle_until.min(looked_at + busy)) => {
                let was_due = idle_until.min(looked_at + busy);
                looked_at = tokio::time::Instant::now();
                warn_if_late(lateness(asleep_since, was_due, looked_at));
                if inner.desk().is_clear() && looked_at < idle_until {
                    continue;
                }
            }
        }
        beaten_at = tokio::time::Instant::now();
        looked_at = beaten_at;
        let beaten = beat(&inner).await;
        if beaten.is_ok() {
            inner.engine().note_touch(longest_silence(&inner.settings));
        }
        match beaten {
            Ok(())
                if looked_for_strays.elapsed()
                    >= inner.settings.stray_age / LOOKS_PER_STRAY_AGE =>
            {
                looked_for_strays = Instant::now();
                hand_back_strays(&inner).await;
            }
            Ok(()) => {}
            Err(StoreError::NodeLost) => come_back(&inner).await,
            Err(error) => tracing::warn!(%error, "a heartbeat failed; the next one follows soon"),
        }
    }
}

/// How long after its time somebody was woken who went to sleep then. What came before that sleep, such as a beat that the store
/// was slow to answer, does not count.
fn lateness(
    asleep_since: tokio::time::Instant,
    was_due: tokio::time::Instant,
    woken: tokio::time::Instant,
) -> Duration {
    woken.saturating_duration_since(was_due.max(asleep_since))
}

/// Nothing else of this process went on meanwhile, other tasks' timeouts and heartbeats among it.
fn warn_if_late(late: Duration) {
    if late >= LATE {
        tracing::warn!(
            ?late,
            "the threads of the runtime were busy: handlers that block or compute for long say `.blocking()`"
        );
    }
}

/// One beat may be late; a longer silence means that the store was away, or this process. With the interval of others
/// before it, it is at most a lease: whoever is silent for longer cannot be told from the dead.
pub(super) fn longest_silence(settings: &WorkerSettings) -> Duration {
    settings.idle_heartbeat.max(settings.heartbeat) * 2
}

pub(super) async fn beat(inner: &Inner) -> Result<(), StoreError> {
    let leases = inner.desk().leases();
    let (node, store, most) = (
        inner.node(),
        &inner.engine().store,
        inner.settings.heartbeat_timeout,
    );
    if leases.is_empty() {
        within(most, store.heartbeat_node(node, &[])).await?;
    }
    for chunk in leases.chunks(bounds::CLAIM_BATCH) {
        let gone = within(most, store.heartbeat_node(node, chunk)).await?;
        let stops = inner.desk().beaten(&gone);
        for (lease, reason) in stops {
            inner.ask_to_stop(&lease, reason);
        }
    }
    Ok(())
}

/// A claim whose answer was lost left tasks that run nowhere; they go back without a charge.
async fn hand_back_strays(inner: &Inner) {
    // What is in hand is read before the store is asked: a task that is claimed meanwhile is too young to be a stray.
    let held = inner.desk().leases();
    let age_ms = millis(inner.settings.stray_age);
    let answer = inner
        .engine()
        .store
        .hand_back_strays(inner.node(), &held, age_ms);
    match within(inner.settings.heartbeat_timeout, answer).await {
        Ok(strays) if strays.is_empty() => {}
        Ok(strays) => {
            tracing::warn!(
                tasks = strays.len(),
                "claims whose answer was lost were handed back"
            );
            inner.engine().wake();
        }
        Err(error) => tracing::debug!(%error, "no look for strays"),
    }
}

/// The node was declared dead while it lived: everything that it ran is lost, and it starts anew under another id.
pub(super) async fn come_back(inner: &Inner) {
    tracing::error!(
        "this node was declared dead; its tasks go to others, and it comes back under a new id"
    );
    inner.stop_all(StopReason::Lost);
    if let Err(error) = within(inner.settings.heartbeat_timeout, inner.register()).await {
        tracing::warn!(%error, "the node could not come back yet and tries again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_was_slow_makes_no_heart_late() {
        let start = tokio::time::Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(lateness(at(0), at(1), at(1)), Duration::ZERO);
        assert_eq!(
            lateness(at(0), at(1), at(9)),
            Duration::from_secs(8),
            "the threads were busy"
        );
        assert_eq!(
            lateness(at(9), at(1), at(9)),
            Duration::ZERO,
            "the beat before took so long"
        );
    }
}
