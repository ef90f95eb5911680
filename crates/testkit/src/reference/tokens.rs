//! Tokens: made, found, listed, used and revoked.

use longhaul_domain::{
    AccessToken, Invalid, KnownToken, NewAccessToken, StoreError, Timestamp,
    access_token::{KEEP_ENDED_MS, TOUCH_EVERY_MS},
    bounds,
};

use super::{state::State, working::check_limit};

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
        let listed = self
            .tokens
            .values()
            .filter(|(token, _)| after.is_none_or(|after| token.id.as_str() > after));
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
        let old: Vec<String> = self
            .tokens
            .values()
            .filter(|(token, _)| is_old(token))
            .map(|(token, _)| token.id.clone())
            .take(limit)
            .collect();
        old.iter().for_each(|id| drop(self.tokens.remove(id)));
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
