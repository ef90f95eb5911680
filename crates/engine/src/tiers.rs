//! Tiers: what class of customer an owner is, where neither a token nor the submitter says so (R13).
//!
//! Who pays for what is known elsewhere: in a table of the application, in a service. That is asked, and its answer is good
//! for a moment. A source that is away costs nobody their submit: what was known last counts, or nothing.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use longhaul_domain::bounds;
use tokio::time::Instant;

/// How long an answer is good for: whoever has just paid is served better within half a minute.
const GOOD_FOR: Duration = Duration::from_secs(30);
/// How long an answer is waited for. A submit waits as long, once per owner and [`GOOD_FOR`].
const PATIENCE: Duration = Duration::from_secs(2);
/// Owners that are remembered. Past it the memory starts anew, which costs a question each.
const REMEMBERED: usize = 10_000;

/// Somebody who knows the tiers of owners.
#[async_trait]
pub trait TierSource: Send + Sync + std::fmt::Debug {
    /// The owner's tier; nothing when they have none. An error is logged, and asked again.
    async fn tier_of(&self, owner: &str) -> Result<Option<String>, String>;
}

/// What a source has said lately.
#[derive(Debug)]
pub(crate) struct Tiers {
    source: Arc<dyn TierSource>,
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Debug, Clone)]
struct Known {
    tier: Option<String>,
    at: Instant,
}

impl Tiers {
    pub(crate) fn new(source: Arc<dyn TierSource>) -> Self {
        Self {
            source,
            known: Mutex::default(),
        }
    }

    /// The owner's tier, as it is known or was.
    pub(crate) async fn tier_of(&self, owner: &str) -> Option<String> {
        let before = self.known().get(owner).cloned();
        if let Some(known) = before
            .as_ref()
            .filter(|known| known.at.elapsed() < GOOD_FOR)
        {
            return known.tier.clone();
        }
        let answer = AssertUnwindSafe(self.source.tier_of(owner)).catch_unwind();
        let answer = match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("the look-up panicked".to_owned()),
            Err(_) => Err("no answer in time".to_owned()),
        };
        let tier = match answer.and_then(fitting) {
            Ok(tier) => tier,
            Err(error) => {
                tracing::warn!(%error, owner, "the tier of an owner is not to be had; what was known last counts");
                before.and_then(|known| known.tier)
            }
        };
        let mut all = self.known();
        if all.len() >= REMEMBERED && !all.contains_key(owner) {
            all.clear();
        }
        all.insert(
            owner.to_owned(),
            Known {
                tier: tier.clone(),
                at: Instant::now(),
            },
        );
        tier
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tier that no task can have must not cost anybody their submit either.
fn fitting(tier: Option<String>) -> Result<Option<String>, String> {
    match tier
        .as_deref()
        .map(|tier| bounds::check_label("tier", tier))
    {
        Some(Err(refused)) => Err(refused.to_string()),
        Some(Ok(())) | None => Ok(tier),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Answers what it is told to, and counts.
    #[derive(Debug, Default)]
    struct Office {
        asked: AtomicUsize,
        answer: Mutex<Option<Result<Option<String>, String>>>,
    }

    impl Office {
        fn will_say(&self, answer: Result<Option<&str>, &str>) {
            let answer = answer
                .map(|tier| tier.map(str::to_owned))
                .map_err(str::to_owned);
            *self.answer.lock().unwrap() = Some(answer);
        }
    }

    #[async_trait]
    impl TierSource for Office {
        async fn tier_of(&self, _owner: &str) -> Result<Option<String>, String> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let answer = self.answer.lock().unwrap().clone();
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_good_for_a_moment() {
        let office = Arc::new(Office::default());
        let tiers = Tiers::new(Arc::clone(&office) as Arc<dyn TierSource>);
        office.will_say(Ok(Some("vip")));
        assert_eq!(tiers.tier_of("u-1").await.as_deref(), Some("vip"));
        office.will_say(Ok(Some("enterprise")));
        assert_eq!(tiers.tier_of("u-1").await.as_deref(), Some("vip"));
        assert_eq!(office.asked.load(Ordering::SeqCst), 1);
        tokio::time::advance(GOOD_FOR).await;
        assert_eq!(tiers.tier_of("u-1").await.as_deref(), Some("enterprise"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_is_away_or_talks_nonsense_takes_nothing_from_anybody() {
        let office = Arc::new(Office::default());
        let tiers = Tiers::new(Arc::clone(&office) as Arc<dyn TierSource>);
        assert_eq!(tiers.tier_of("u-1").await, None, "it does not answer");
        tokio::time::advance(GOOD_FOR).await;
        office.will_say(Ok(Some("vip")));
        assert_eq!(tiers.tier_of("u-1").await.as_deref(), Some("vip"));
        for nonsense in [Err("gone"), Ok(Some("no such\0tier"))] {
            tokio::time::advance(GOOD_FOR).await;
            office.will_say(nonsense);
            assert_eq!(
                tiers.tier_of("u-1").await.as_deref(),
                Some("vip"),
                "{nonsense:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_source_that_panics_costs_nobody_their_submit() {
        #[derive(Debug)]
        struct Broken;

        #[async_trait]
        impl TierSource for Broken {
            async fn tier_of(&self, _owner: &str) -> Result<Option<String>, String> {
                panic!("a bug in the look-up")
            }
        }

        assert_eq!(Tiers::new(Arc::new(Broken)).tier_of("u-1").await, None);
    }

    #[tokio::test]
    async fn what_is_remembered_is_bounded() {
        let office = Arc::new(Office::default());
        let tiers = Tiers::new(Arc::clone(&office) as Arc<dyn TierSource>);
        office.will_say(Ok(None));
        for n in 0..=REMEMBERED {
            tiers.tier_of(&n.to_string()).await;
        }
        assert_eq!(tiers.known().len(), 1);
    }
}
