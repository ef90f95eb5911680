//! Access tokens: created, found, listed, touched, pruned and revoked.

use async_trait::async_trait;
use longhaul_domain::{
    AccessToken, Invalid, KnownToken, NewAccessToken, StoreError, Timestamp,
    access_token::{KEEP_ENDED_MS, TOUCH_EVERY_MS},
    bounds,
    contract::store::Tokens,
};

use super::{MemoryStore, attempts::check_limit, state::State};

#[async_trait]
impl Tokens for MemoryStore {
    async fn create_token(&self, token: &NewAccessToken) -> Result<AccessToken, StoreError> {
        let (mut state, now) = self.begin();
        state.create_token(token, now)
    }

    async fn find_token(&self, id: &str) -> Result<Option<KnownToken>, StoreError> {
        let (state, now) = self.begin();
        Ok(state.find_token(id, now))
    }

    async fn list_tokens(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<AccessToken>, StoreError> {
        self.begin().0.list_tokens(after, limit)
    }

    async fn touch_token(&self, id: &str) -> Result<(), StoreError> {
        let (mut state, now) = self.begin();
        state.touch_token(id, now);
        Ok(())
    }

    async fn revoke_token(&self, id: &str) -> Result<Option<AccessToken>, StoreError> {
        let (mut state, now) = self.begin();
        Ok(state.revoke_token(id, now))
    }

    async fn prune_tokens(&self, limit: usize) -> Result<usize, StoreError> {
        let (mut state, now) = self.begin();
        state.prune_tokens(limit, now)
    }
}

impl State {
    pub(super) fn create_token(
        &mut self,
        new: &NewAccessToken,
        now: Timestamp,
    ) -> Result<AccessToken, StoreError> {
        new.check()?;
        if let Some((known, digest)) = self.tokens.get(&new.id) {
            return if *digest == new.digest {
                Ok(known.clone())
            } else {
                Err(taken().into())
            };
        }

        let token = AccessToken {
            id: new.id.clone(),
            prefix: new.prefix.clone(),
            owner: new.owner.clone(),
            tier: new.tier.clone(),
            scopes: new.scopes.clone(),
            name: new.name.clone(),
            created_at: now,
            expires_at: now.plus_ms(new.ttl_ms),
            last_used_at: None,
            revoked_at: None,
        };

        self.tokens
            .insert(new.id.clone(), (token.clone(), new.digest));
        Ok(token)
    }

    pub(super) fn find_token(&self, id: &str, now: Timestamp) -> Option<KnownToken> {
        let (token, digest) = self.tokens.get(id)?;
        Some(KnownToken {
            token: token.clone(),
            digest: *digest,
            seen_at: now,
        })
    }

    pub(super) fn list_tokens(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<AccessToken>, StoreError> {
        check_limit(limit, bounds::PAGE_SIZE)?;

        let tokens = self.tokens.values();
        let listed =
            tokens.filter(|(token, _)| after.is_none_or(|after| token.id.as_str() > after));
        Ok(listed.take(limit).map(|(token, _)| token.clone()).collect())
    }

    pub(super) fn touch_token(&mut self, id: &str, now: Timestamp) {
        if let Some((token, _)) = self.tokens.get_mut(id)
            && token
                .last_used_at
                .is_none_or(|last| last.plus_ms(TOUCH_EVERY_MS) <= now)
        {
            token.last_used_at = Some(now);
        }
    }

    pub(super) fn prune_tokens(
        &mut self,
        limit: usize,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;
        let is_old = |token: &AccessToken| token.ends_at().plus_ms(KEEP_ENDED_MS) <= now;
        let tokens = self.tokens.values();
        let old = tokens.filter(|(token, _)| is_old(token)).take(limit);
        let old: Vec<String> = old.map(|(token, _)| token.id.clone()).collect();

        for id in &old {
            self.tokens.remove(id);
        }

        Ok(old.len())
    }

    pub(super) fn revoke_token(&mut self, id: &str, now: Timestamp) -> Option<AccessToken> {
        let (token, _) = self.tokens.get_mut(id)?;
        token.revoked_at = token.revoked_at.or(Some(now));
        Some(token.clone())
    }
}

fn taken() -> Invalid {
    Invalid::new(
        "tokenId",
        "is taken",
        "the id of a token that is not known yet",
    )
}
