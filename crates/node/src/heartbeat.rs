//! The heartbeat: renews all leases of the node with one statement, and stops handlers whose
//! attempt no longer counts.

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{StoreError, bounds};
use longhaul_sdk::StopReason;
use tokio::time::Instant;

use crate::{deadlines::within, node::Node, settings::WorkerSettings};

/// How often, within the age of a stray, the node looks for tasks that it runs according to the
/// store but not to its own knowledge.
const LOOKS_PER_STRAY_AGE: u32 = 4;
/// How late the heartbeat may be before the node logs a warning.
const LATE: Duration = Duration::from_secs(3);

/// Runs until the node closes.
pub(crate) async fn run(node: Arc<Node>) {
    let mut strays_handed_back_at = Instant::now();
    let mut timer = Timer::start(&node.settings);

    while timer.wait(&node).await == Wake::Beat {
        if beat_or_register(&node).await.is_err() {
            continue;
        }

        node.engine()
            .note_store_answer(longest_silence(&node.settings));
        if strays_handed_back_at.elapsed() >= node.settings.stray_age / LOOKS_PER_STRAY_AGE {
            strays_handed_back_at = Instant::now();
            hand_back_strays(&node).await;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Wake {
    Beat,
    Close,
}

/// When the next heartbeat is due: soon while tasks are in flight, later while there are none.
struct Timer {
    busy_interval: Duration,
    idle_interval: Duration,
    last_beat: Instant,
    last_look: Instant,
}

impl Timer {
    fn start(settings: &WorkerSettings) -> Self {
        let now = Instant::now();
        Self {
            busy_interval: settings.heartbeat,
            idle_interval: settings.idle_heartbeat.max(settings.heartbeat),
            last_beat: now,
            last_look: now,
        }
    }

    /// Waits for the next heartbeat. The timer looks as often as a busy node beats, so that a claim
    /// need not wake it.
    async fn wait(&mut self, node: &Node) -> Wake {
        loop {
            let idle_due = self.last_beat + self.idle_interval;
            let look_due = idle_due.min(self.last_look + self.busy_interval);
            let asleep_since = Instant::now();

            // A wakeup that another branch beats is stored and ends the next wait.
            tokio::select! {
                () = node.shutdown.closing.cancelled() => return Wake::Close,
                () = node.engine().wakeups().wait_for_leases() => break,
                () = tokio::time::sleep_until(look_due) => {}
            }

            self.last_look = Instant::now();
            warn_if_late(lateness(asleep_since, look_due, self.last_look));
            if self.last_look >= idle_due || !node.in_flight().is_clear() {
                break;
            }
        }

        self.last_beat = Instant::now();
        self.last_look = self.last_beat;
        Wake::Beat
    }
}

/// How late the timer woke up. The time before it went to sleep does not count: a store that was
/// slow to answer the last heartbeat is not a reason to warn.
fn lateness(asleep_since: Instant, due: Instant, woken: Instant) -> Duration {
    woken.saturating_duration_since(due.max(asleep_since))
}

/// If the timer was late, so was everything else in the process: other timeouts and heartbeats,
/// too.
fn warn_if_late(late: Duration) {
    if late >= LATE {
        tracing::warn!(
            ?late,
            "heartbeat was late because the threads of the runtime were busy; handlers that \
             block or compute for long need `.blocking()`"
        );
    }
}

/// The longest time between two answers of the store that is not an outage: one heartbeat may be
/// missed. With the interval of the other nodes before it, this is at most a lease. A node that is
/// silent for longer cannot be told from a dead one.
pub(crate) fn longest_silence(settings: &WorkerSettings) -> Duration {
    settings.idle_heartbeat.max(settings.heartbeat) * 2
}

/// Sends a heartbeat. Registers the node again if it was declared dead.
async fn beat_or_register(node: &Node) -> Result<(), StoreError> {
    let beaten = beat(node).await;
    match &beaten {
        Ok(()) => {}
        Err(StoreError::NodeLost) => register_again(node).await,
        Err(error) => tracing::warn!(%error, "heartbeat failed; retrying"),
    }

    beaten
}

/// Renews all leases. Handlers whose attempt no longer counts are asked to stop.
pub(crate) async fn beat(node: &Node) -> Result<(), StoreError> {
    let in_flight = node.in_flight().leases();
    let id = node.id();
    let leases = node.engine().leases();
    let timeout = node.settings.heartbeat_timeout;

    if in_flight.is_empty() {
        within(timeout, leases.heartbeat_node(id, &[])).await?;
    }

    for chunk in in_flight.chunks(bounds::CLAIM_BATCH) {
        let lost = within(timeout, leases.heartbeat_node(id, chunk)).await?;
        let stops = node.in_flight().heartbeat_answered(&lost);
        for (lease, reason) in stops {
            node.attempts.stop(&lease, reason);
        }
    }

    Ok(())
}

/// Hands back tasks whose claim was never answered. No attempt is charged.
async fn hand_back_strays(node: &Node) {
    // The leases are read before the store is asked: a task that is claimed in between is too young
    // to be a stray.
    let in_flight = node.in_flight().leases();
    let age_ms = u64::try_from(node.settings.stray_age.as_millis())
        .unwrap_or(bounds::DURATION_MS)
        .min(bounds::DURATION_MS);

    let leases = node.engine().leases();
    let answer = leases.hand_back_strays(node.id(), &in_flight, age_ms);
    match within(node.settings.heartbeat_timeout, answer).await {
        Ok(strays) if strays.is_empty() => {}
        Ok(strays) => {
            tracing::warn!(
                tasks = strays.len(),
                "claims without an answer left tasks that do not run; they were handed back"
            );
            node.engine().wake();
        }
        Err(error) => tracing::debug!(%error, "search for strays failed; retrying later"),
    }
}

/// The node was declared dead while it lived. All its tasks are lost, and it registers under
/// another id.
pub(crate) async fn register_again(node: &Node) {
    tracing::error!(
        "node was declared dead; its tasks go to other nodes, and it registers under a new id"
    );
    node.attempts.stop_all(StopReason::Lost);

    if let Err(error) = within(node.settings.heartbeat_timeout, node.register()).await {
        tracing::warn!(%error, "registration failed; retrying");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_store_does_not_make_the_heartbeat_late() {
        let start = Instant::now();
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
            "the heartbeat before took so long"
        );
    }
}
