//! The times of a run. They are short, so that a minute has many faults, and equal for all nodes.

use std::time::Duration;

use longhaul::{MaintenanceSettings, RetryPolicy, WorkerSettings};

/// A node without heartbeat for this long is dead.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// The shortest freeze: longer than the lease and than the three seconds of the rescuer's
/// maintenance lease, so that other nodes rescue the frozen node's tasks even if it was the
/// rescuer.
pub(crate) const FREEZE_MS: u64 = LEASE.as_millis() as u64 + 2_700;
/// The shortest freeze of a database that is the only server: longer than the lease, so that all
/// nodes are late after the thaw, and longer than the client waits for an answer.
pub(crate) const SERVER_FREEZE_MS: u64 = LEASE.as_millis() as u64 + 1_500;
const HEARTBEAT: Duration = Duration::from_millis(300);
const RESCUE_EVERY: Duration = Duration::from_millis(200);

/// How long a store operation may take, for example on a half-open connection. Longer than the ten
/// seconds of a lock wait: a statement that is abandoned earlier keeps waiting in the server with
/// its locks, and its repetitions wait behind it.
pub(crate) const OPERATION_WAIT: Duration = Duration::from_secs(12);

/// A task that has not ended this long after the lease is stuck.
pub(crate) const STUCK_AFTER_LEASE: Duration = Duration::from_secs(10);

/// The delay before each retry, without jitter, so that the checker knows the earliest time of the
/// next attempt.
pub(crate) const RETRY_MS: u64 = 200;
pub(crate) const RETRY: RetryPolicy = RetryPolicy {
    initial_ms: RETRY_MS,
    factor: 1.0,
    jitter: 0.0,
    max_ms: RETRY_MS,
};

/// The attempts of tasks whose handlers fail whenever the database is down.
pub(crate) const MANY_ATTEMPTS: u32 = 1_000;

/// Many nodes die here, so no task must be quarantined for it.
const MAX_CRASHES: u32 = 1_000;

pub(crate) fn maintenance() -> MaintenanceSettings {
    MaintenanceSettings {
        lease: LEASE,
        rescue_every: RESCUE_EVERY,
        max_crashes: MAX_CRASHES,
        ..MaintenanceSettings::default()
    }
}

pub(crate) fn worker(name: &str, slots: usize) -> WorkerSettings {
    WorkerSettings {
        name: name.to_owned(),
        slots,
        heartbeat: HEARTBEAT,
        stray_age: LEASE,
        drain: Duration::from_secs(5),
        ..WorkerSettings::default()
    }
}
