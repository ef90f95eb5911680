//! The tiers of owners, where neither the token nor the submitter names one.
//!
//! Another system knows who pays for what: a table of the application, a service. Its answers are
//! cached for a moment. A source that is down never fails a submit: the cached tier counts, or
//! none.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use longhaul_domain::bounds;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

/// How long an answer is cached: an owner who has just paid is served better within half a minute.
const CACHE_TTL: Duration = Duration::from_secs(30);
/// How long a lookup may take. A submit waits for it, once per owner and [`CACHE_TTL`].
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// Owners in the cache. When it is full it is cleared, which costs one lookup each.
const MAX_CACHED: usize = 10_000;

/// Knows the tiers of owners.
#[async_trait]
pub trait TierSource: Send + Sync + std::fmt::Debug {
    /// The owner's tier; `None` when they have none. An error is logged, and the lookup repeated
    /// later.
    async fn tier_of(&self, owner: &str) -> Result<Option<String>, String>;
}

/// A tier source with a cache.
#[derive(Debug)]
pub(crate) struct Tiers {
    source: Arc<dyn TierSource>,
    /// Never held across an await: two submits may look up the same owner, which does no harm.
    cache: Mutex<HashMap<String, CachedTier>>,
}

#[derive(Debug, Clone)]
struct CachedTier {
    tier: Option<String>,
    looked_up_at: Instant,
}

impl Tiers {
    pub(crate) fn new(source: Arc<dyn TierSource>) -> Self {
        Self {
            source,
            cache: Mutex::default(),
        }
    }

    /// The owner's tier, from the cache or the source.
    pub(crate) async fn tier_of(&self, owner: &str) -> Option<String> {
        let cached = self.cache.lock().get(owner).cloned();
        if let Some(cached) = &cached
            && cached.looked_up_at.elapsed() < CACHE_TTL
        {
            return cached.tier.clone();
        }

        let tier = match self.look_up(owner).await {
            Ok(tier) => tier,
            Err(error) => {
                tracing::warn!(
                    %error,
                    user_id = owner,
                    "tier lookup failed; using the cached tier"
                );
                cached.and_then(|cached| cached.tier)
            }
        };

        self.remember(owner, tier.clone());
        tier
    }

    async fn look_up(&self, owner: &str) -> Result<Option<String>, String> {
        let answer = AssertUnwindSafe(self.source.tier_of(owner)).catch_unwind();
        let tier = match timeout(LOOKUP_TIMEOUT, answer).await {
            Ok(Ok(answer)) => answer?,
            Ok(Err(_)) => return Err("the lookup panicked".to_owned()),
            Err(_) => return Err(format!("no answer within {LOOKUP_TIMEOUT:?}")),
        };

        // An invalid tier must not fail the submit.
        if let Some(tier) = &tier {
            bounds::check_label("tier", tier).map_err(|refused| refused.to_string())?;
        }
        Ok(tier)
    }

    fn remember(&self, owner: &str, tier: Option<String>) {
        let mut cache = self.cache.lock();
        if cache.len() >= MAX_CACHED && !cache.contains_key(owner) {
            cache.clear();
        }

        let looked_up_at = Instant::now();
        cache.insert(owner.to_owned(), CachedTier { tier, looked_up_at });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Gives the answer that a test has set, and counts the lookups.
    #[derive(Debug, Default)]
    struct FakeSource {
        lookups: AtomicUsize,
        answer: Mutex<Option<Result<Option<String>, String>>>,
    }

    impl FakeSource {
        fn set(&self, answer: Result<Option<&str>, &str>) {
            let answer = answer
                .map(|tier| tier.map(str::to_owned))
                .map_err(str::to_owned);
            *self.answer.lock() = Some(answer);
        }
    }

    #[async_trait]
    impl TierSource for FakeSource {
        async fn tier_of(&self, _owner: &str) -> Result<Option<String>, String> {
            self.lookups.fetch_add(1, Ordering::SeqCst);
            let answer = self.answer.lock().clone();
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_cached_for_a_moment() {
        let source = Arc::new(FakeSource::default());
        let tiers = Tiers::new(Arc::clone(&source) as Arc<dyn TierSource>);
        source.set(Ok(Some("vip")));
        assert_eq!(tiers.tier_of("u-1").await.as_deref(), Some("vip"));

        source.set(Ok(Some("enterprise")));
        assert_eq!(tiers.tier_of("u-1").await.as_deref(), Some("vip"));
        assert_eq!(source.lookups.load(Ordering::SeqCst), 1);

        tokio::time::advance(CACHE_TTL).await;
        assert_eq!(tiers.tier_of("u-1").await.as_deref(), Some("enterprise"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_or_invalid_answer_leaves_the_cached_tier() {
        let source = Arc::new(FakeSource::default());
        let tiers = Tiers::new(Arc::clone(&source) as Arc<dyn TierSource>);
        assert_eq!(
            tiers.tier_of("u-1").await,
            None,
            "the source does not answer"
        );

        tokio::time::advance(CACHE_TTL).await;
        source.set(Ok(Some("vip")));
        assert_eq!(tiers.tier_of("u-1").await.as_deref(), Some("vip"));

        for bad in [Err("gone"), Ok(Some("no such\0tier"))] {
            tokio::time::advance(CACHE_TTL).await;
            source.set(bad);
            assert_eq!(
                tiers.tier_of("u-1").await.as_deref(),
                Some("vip"),
                "{bad:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_source_that_panics_fails_no_submit() {
        #[derive(Debug)]
        struct Broken;

        #[async_trait]
        impl TierSource for Broken {
            async fn tier_of(&self, _owner: &str) -> Result<Option<String>, String> {
                panic!("a bug in the lookup")
            }
        }

        assert_eq!(Tiers::new(Arc::new(Broken)).tier_of("u-1").await, None);
    }

    #[tokio::test]
    async fn the_cache_is_bounded() {
        let source = Arc::new(FakeSource::default());
        let tiers = Tiers::new(Arc::clone(&source) as Arc<dyn TierSource>);
        source.set(Ok(None));
        for n in 0..=MAX_CACHED {
            tiers.tier_of(&n.to_string()).await;
        }
        assert_eq!(tiers.cache.lock().len(), 1);
    }
}
