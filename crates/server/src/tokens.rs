//! Tokens of callers: read from the request, looked up, and remembered for a moment.
//!
//! What the store said of a token is good for [`REMEMBERED_FOR`], so that a request does not cost a read, and a token
//! that is revoked is refused everywhere within that time, and its live streams end. Of a token only the digest is
//! remembered.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_domain::{
    KnownToken, TokenStanding, TokenText, access_token::TOUCH_EVERY_MS, contract::Store,
};
use tokio::time::Instant;

use crate::{
    identity::{Caller, Scope},
    problem::ApiError,
};

mod failures;
mod shown;

use failures::Failures;
pub(crate) use shown::shown;

/// How long an answer of the store is good for.
pub(crate) const REMEMBERED_FOR: Duration = Duration::from_secs(5);
/// Tokens that are remembered at once. Past it the memory starts anew, which costs a read each.
const REMEMBERED: usize = 10_000;

/// A token that a request shows.
#[derive(Clone)]
pub(crate) struct Standing {
    tokens: Arc<Tokens>,
    peer: IpAddr,
    text: String,
}

impl Standing {
    /// Who shows it, if it is good now.
    pub(crate) async fn caller(&self) -> Result<Caller, ApiError> {
        self.tokens.caller(self.peer, &self.text).await
    }

    /// Ends when it is no longer good. A store that is away says nothing against it.
    pub(crate) async fn until_refused(self) {
        loop {
            tokio::time::sleep(REMEMBERED_FOR).await;
            if let Err(ApiError::ExpiredToken | ApiError::RevokedToken | ApiError::UnknownToken) =
                self.caller().await
            {
                return;
            }
        }
    }
}

impl std::fmt::Debug for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Standing(…)")
    }
}

/// The tokens that have been shown lately.
#[derive(Debug)]
pub(crate) struct Tokens {
    store: Arc<dyn Store>,
    known: Mutex<HashMap<String, Remembered>>,
    failures: Failures,
}

#[derive(Debug, Clone)]
struct Remembered {
    known: Arc<KnownToken>,
    at: Instant,
}

impl Tokens {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            known: Mutex::default(),
            failures: Failures::default(),
        }
    }

    /// What the request shows, to be looked at now and, on live routes, again and again.
    pub(crate) fn standing(self: &Arc<Self>, peer: IpAddr, text: String) -> Standing {
        Standing {
            tokens: Arc::clone(self),
            peer,
            text,
        }
    }

    /// Who shows this text, if it is a token that is good now. An address that shows many that are not is told to wait.
    async fn caller(&self, peer: IpAddr, text: &str) -> Result<Caller, ApiError> {
        let checked = self.check(peer, text).await;
        // What is no token at all costs nobody a look.
        if matches!(checked, Err(ApiError::UnknownToken)) {
            self.failures.note(peer, Instant::now());
        }
        checked
    }

    async fn check(&self, peer: IpAddr, text: &str) -> Result<Caller, ApiError> {
        let token = TokenText::parse(text).map_err(ApiError::BadToken)?;
        let known = match self.remembered(token.id()) {
            Some(known) if known.at.elapsed() < REMEMBERED_FOR => known,
            // Whoever shows a token that was known before guesses nothing, whatever others at its address do.
            Some(known) if known.known.digest.is_of(&token) => self.look_up(token.id()).await?,
            Some(_) | None => {
                self.failures.check(peer, Instant::now())?;
                self.look_up(token.id()).await?
            }
        };
        if !known.known.digest.is_of(&token) {
            return Err(ApiError::UnknownToken);
        }
        let since = u64::try_from(known.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        match known
            .known
            .token
            .standing(known.known.seen_at.plus_ms(since))
        {
            TokenStanding::Good => Ok(caller_of(&known.known)),
            TokenStanding::Expired => Err(ApiError::ExpiredToken),
            TokenStanding::Revoked => Err(ApiError::RevokedToken),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Remembered>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remembered(&self, id: &str) -> Option<Remembered> {
        self.known().get(id).cloned()
    }

    /// Asks the store, and has it note the use if that is due.
    async fn look_up(&self, id: &str) -> Result<Remembered, ApiError> {
        let at = Instant::now();
        let Some(known) = self.store.find_token(id).await?.map(Arc::new) else {
            self.known().remove(id);
            return Err(ApiError::UnknownToken);
        };
        let remembered = Remembered {
            known: Arc::clone(&known),
            at,
        };
        {
            let mut all = self.known();
            if all.len() >= REMEMBERED {
                all.clear();
            }
            all.insert(id.to_owned(), remembered.clone());
        }
        let is_due = known
            .token
            .last_used_at
            .is_none_or(|last| last.plus_ms(TOUCH_EVERY_MS) <= known.seen_at);
        if is_due
            && known.token.standing(known.seen_at) == TokenStanding::Good
            && let Err(error) = self.store.touch_token(id).await
        {
            tracing::debug!(%error, "the use of a token could not be noted");
        }
        Ok(remembered)
    }
}

fn caller_of(known: &KnownToken) -> Caller {
    let scopes = Scope::ALL
        .into_iter()
        .filter(|scope| known.token.scopes.iter().any(|name| name == scope.as_str()));
    Caller::new(
        known.token.owner.clone(),
        scopes.collect(),
        known.token.tier.clone(),
    )
}
