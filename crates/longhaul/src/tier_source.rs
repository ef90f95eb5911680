//! An application's closure as the engine's tier source.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_engine::tiers::TierSource;

struct Lookup<F>(F);

impl<F> std::fmt::Debug for Lookup<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lookup(…)")
    }
}

#[async_trait]
impl<F, Fut, E> TierSource for Lookup<F>
where
    F: Fn(String) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Option<String>, E>> + Send,
    E: std::fmt::Display,
{
    async fn tier_of(&self, owner: &str) -> Result<Option<String>, String> {
        (self.0)(owner.to_owned())
            .await
            .map_err(|error| error.to_string())
    }
}

pub(crate) fn tier_source<F, Fut, E>(look_up: F) -> Arc<dyn TierSource>
where
    F: Fn(String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<String>, E>> + Send + 'static,
    E: std::fmt::Display + 'static,
{
    Arc::new(Lookup(look_up))
}
