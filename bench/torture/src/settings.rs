//! The times of a run. They are short, so that a minute holds many deaths, and the same for every node.

use std::time::Duration;

use longhaul::{DutySettings, RetryPolicy, WorkerSettings};

/// A node that is silent for this long is dead.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// The shortest freeze: longer than the lease, and longer than the three seconds for which a node holds the duty to
/// rescue, so that others rescue the frozen one's tasks even if the duty was its own.
pub(crate) const FREEZE_MS: u64 = LEASE.as_millis() as u64 + 2_700;
/// The shortest freeze of the database where there is nothing else to break: longer than the lease, so that it thaws to nodes of
/// which none was heard in time, and longer than the client waits for an answer.
pub(crate) const SERVER_FREEZE_MS: u64 = LEASE.as_millis() as u64 + 1_500;
const HEARTBEAT: Duration = Duration::from_millis(300);
const RESCUE_EVERY: Duration = Duration::from_millis(200);

/// How long an operation of the store may take: a connection that is half open is given up after this. Longer than the
/// ten seconds for which a lock may be waited for: a statement that is given up earlier goes on waiting in the server,
/// with the locks that it has, and those who ask again queue up behind it.
pub(crate) const OPERATION_WAIT: Duration = Duration::from_secs(12);

/// What nobody has finished so long after the lease is stuck.
pub(crate) const STUCK_AFTER_LEASE: Duration = Duration::from_secs(10);

/// The wait before each retry: without jitter, so that the checker knows the earliest moment of the next attempt.
pub(crate) const RETRY_MS: u64 = 200;
pub(crate) const RETRY: RetryPolicy = RetryPolicy {
    initial_ms: RETRY_MS,
    factor: 1.0,
    jitter: 0.0,
    max_ms: RETRY_MS,
};

/// Attempts of tasks whose handlers fail whenever the database is away, which says nothing about them.
pub(crate) const MANY_ATTEMPTS: u32 = 1_000;

/// Many nodes die here, and no task is to be blamed for it.
const MAX_CRASHES: u32 = 1_000;

pub(crate) fn duties() -> DutySettings {
    DutySettings {
        lease: LEASE,
        rescue_every: RESCUE_EVERY,
        max_crashes: MAX_CRASHES,
        ..DutySettings::default()
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
