//! Access tokens of callers: read from the request, looked up in the store, and cached for a short
//! time.
//!
//! An answer of the store is cached for [`CACHE_TTL`], so that a request does not cost a read. A
//! revoked token is therefore refused everywhere within that time, and its live streams end. The
//! cache holds the digest of a token, never the token. Unknown tokens are told apart by
//! [`KnownIds`], which reads for all of them together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{KnownToken, TokenStanding, TokenText, access_token::TOUCH_EVERY_MS};
use longhaul_engine::Engine;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    identity::{Caller, Scope},
    problem::ApiError,
};

mod known_ids;
mod presented;

use known_ids::KnownIds;
pub(crate) use presented::presented_token;

/// How long an answer of the store is cached.
const CACHE_TTL: Duration = Duration::from_secs(5);
/// Tokens in the cache. A full cache is cleared, which costs one read per token.
const CACHED_TOKENS: usize = 10_000;

/// The token that a request presents.
#[derive(Clone)]
pub(crate) struct PresentedToken {
    tokens: Arc<Tokens>,
    text: String,
}

impl PresentedToken {
    /// The public part of the token.
    pub(crate) fn id(&self) -> Option<String> {
        let token = TokenText::parse(&self.text).ok()?;
        Some(token.id().to_owned())
    }

    /// The token's owner, if the token is valid now.
    pub(crate) async fn caller(&self) -> Result<Caller, ApiError> {
        self.tokens.caller(&self.text).await
    }

    /// Completes when the token is no longer valid. An unavailable store leaves it valid.
    pub(crate) async fn until_refused(self) {
        loop {
            tokio::time::sleep(CACHE_TTL).await;
            if let Err(ApiError::ExpiredToken | ApiError::RevokedToken | ApiError::UnknownToken) =
                self.caller().await
            {
                return;
            }
        }
    }
}

impl std::fmt::Debug for PresentedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PresentedToken(…)")
    }
}

/// Checks tokens, with a cache in front of the store.
#[derive(Debug)]
pub(crate) struct Tokens {
    engine: Arc<Engine>,
    cache: Mutex<HashMap<String, CachedToken>>,
    known_ids: KnownIds,
}

#[derive(Debug, Clone)]
struct CachedToken {
    known: Arc<KnownToken>,
    read_at: Instant,
}

impl Tokens {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            cache: Mutex::default(),
            known_ids: KnownIds::new(),
        }
    }

    /// The token of a request. It is checked when its caller is asked for.
    pub(crate) fn presented(self: &Arc<Self>, text: String) -> PresentedToken {
        PresentedToken {
            tokens: Arc::clone(self),
            text,
        }
    }

    /// The owner of a valid token.
    async fn caller(&self, text: &str) -> Result<Caller, ApiError> {
        let token = TokenText::parse(text).map_err(ApiError::BadToken)?;
        let cached = match self.cached(token.id()) {
            Some(cached) if cached.read_at.elapsed() < CACHE_TTL => cached,
            Some(_) | None if self.known_ids.contains(&self.engine, token.id()).await? => {
                self.look_up(token.id()).await?
            }
            Some(_) | None => return Err(ApiError::UnknownToken),
        };

        let known = &cached.known;
        if !known.digest.is_of(&token) {
            return Err(ApiError::UnknownToken);
        }

        // The store's clock decides, carried forward by the age of the answer.
        let age_ms = u64::try_from(cached.read_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        match known.token.standing(known.seen_at.plus_ms(age_ms)) {
            TokenStanding::Good => Ok(caller_of(known)),
            TokenStanding::Expired => Err(ApiError::ExpiredToken),
            TokenStanding::Revoked => Err(ApiError::RevokedToken),
        }
    }

    fn cached(&self, id: &str) -> Option<CachedToken> {
        self.cache.lock().get(id).cloned()
    }

    /// Reads the token from the store, and records its use there if that is due.
    async fn look_up(&self, id: &str) -> Result<CachedToken, ApiError> {
        // The age counts from before the read, so that an answer is never older than it seems.
        let read_at = Instant::now();
        let Some(known) = self.engine.tokens().find_token(id).await?.map(Arc::new) else {
            self.cache.lock().remove(id);
            self.known_ids.forget(id);
            return Err(ApiError::UnknownToken);
        };

        let cached = CachedToken { known, read_at };
        self.insert(id, cached.clone());
        self.touch_if_due(id, &cached.known).await;
        Ok(cached)
    }

    fn insert(&self, id: &str, token: CachedToken) {
        // Check and insert under one lock keep the bound.
        let mut cache = self.cache.lock();
        if cache.len() >= CACHED_TOKENS {
            cache.clear();
        }
        cache.insert(id.to_owned(), token);
    }

    async fn touch_if_due(&self, id: &str, known: &KnownToken) {
        let last = known.token.last_used_at;
        let is_due = last.is_none_or(|last| last.plus_ms(TOUCH_EVERY_MS) <= known.seen_at);
        if !is_due || known.token.standing(known.seen_at) != TokenStanding::Good {
            return;
        }

        if let Err(error) = self.engine.tokens().touch_token(id).await {
            tracing::debug!(%error, "tokens: last use was not recorded; continuing");
        }
    }
}

fn caller_of(known: &KnownToken) -> Caller {
    let token = &known.token;
    let has = |scope: &Scope| token.scopes.iter().any(|name| name == scope.as_str());
    let scopes = Scope::ALL.into_iter().filter(has).collect();
    Caller::new(token.owner.clone(), scopes, token.tier.clone())
}
