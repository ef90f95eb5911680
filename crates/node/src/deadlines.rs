//! How long the node waits for an answer of the store. A host that vanishes after it has taken a
//! request never answers.

use std::time::Duration;

use longhaul_domain::StoreError;

use crate::settings::WorkerSettings;

/// For writes on behalf of many handlers: reports, log lines, progress.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// For claims. The answer must not arrive when its tasks already count as strays.
pub(crate) fn claim_timeout(settings: &WorkerSettings) -> Duration {
    settings.stray_age / 2
}

/// The store's answer. After the timeout the store counts as unavailable and the outcome is
/// unknown.
pub(crate) async fn within<T>(
    timeout: Duration,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(timeout, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::Unavailable(format!(
            "no answer within {timeout:?}"
        ))),
    }
}
