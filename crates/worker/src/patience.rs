//! How long the worker waits for an answer of the store. A host that vanishes after it has taken a request never says so.

use std::time::Duration;

use longhaul_domain::StoreError;

use crate::settings::WorkerSettings;

/// For what many handlers write together: reports, log lines, progress.
pub(crate) const WRITE: Duration = Duration::from_secs(30);

/// For a claim and what belongs to it: the answer must not come when its tasks count as strays already.
pub(crate) fn for_claim(settings: &WorkerSettings) -> Duration {
    settings.stray_age / 2
}

/// The store's answer, or that it is away: then nothing is known of the outcome.
pub(crate) async fn within<T>(
    most: Duration,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(most, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::Unavailable(format!(
            "no answer within {most:?}"
        ))),
    }
}
