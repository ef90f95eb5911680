//! What the end of an attempt tells the rate limiter.

use longhaul_domain::contract::{rate_limiter::LimiterError, store::AttemptEnd};

use crate::{attempt::RunningAttempt, node::Node};

/// The rate limit under which a refusal is counted when the attempt had no permit.
const NO_LIMIT: &str = "none";

/// A refusal of a provider parks the limit that was used last. A result shows that all limits are
/// open. Any other end says nothing: the call that a permit was for may not have been made.
pub(super) async fn settle(node: &Node, attempt: &RunningAttempt, end: &AttemptEnd) {
    let mut limits = attempt.take_limits();
    let settled = match end {
        AttemptEnd::Snoozed {
            reason: Some(reason),
            delay_ms,
        } if reason.class == "rate_limited" => park(node, limits.pop(), *delay_ms).await,
        AttemptEnd::Completed { .. } => release(node, &limits).await,
        AttemptEnd::Failed { .. }
        | AttemptEnd::Snoozed { .. }
        | AttemptEnd::HandedBack
        | AttemptEnd::Cancelled => Ok(()),
    };

    if let Err(error) = settled {
        tracing::warn!(%error, "rate limiter did not take the outcome of the attempt");
    }
}

async fn park(node: &Node, limit: Option<String>, delay_ms: u64) -> Result<(), LimiterError> {
    let metrics = node.engine().metrics();
    match limit {
        Some(key) => {
            metrics.throttled(&key);
            node.limiter.park(&key, delay_ms).await
        }
        None => {
            metrics.throttled(NO_LIMIT);
            Ok(())
        }
    }
}

async fn release(node: &Node, limits: &[String]) -> Result<(), LimiterError> {
    let releases = limits.iter().map(|key| node.limiter.release(key));
    futures::future::try_join_all(releases).await?;
    Ok(())
}
