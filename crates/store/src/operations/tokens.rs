//! Tokens: create, find, list, use and revoke.

use async_trait::async_trait;
use longhaul_domain::{
    AccessToken, Invalid, KnownToken, NewAccessToken,
    access_token::{KEEP_ENDED_MS, TOUCH_EVERY_MS},
    bounds,
};

use super::check_limit;
use crate::{
    catalog::Statement,
    record,
    row::Param,
    session::{Mode, Operation, Session},
    sql_error::SqlError,
};

/// Saves a token.
#[async_trait]
impl Operation for NewAccessToken {
    type Output = AccessToken;

    fn check(&self) -> Result<(), Invalid> {
        Self::check(self)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<AccessToken, SqlError> {
        let token = self;
        let clock = session.clock();
        let digest = record::digest_text(token.digest);
        let scopes = token.scopes.join(" ");
        let ttl_micros = i64::try_from(token.ttl_ms)
            .unwrap_or(i64::MAX / 1_000)
            .saturating_mul(1_000);

        let params = [
            clock.into(),
            (&token.id).into(),
            (&digest).into(),
            (&token.prefix).into(),
            (&token.owner).into(),
            Param::Text(token.tier.as_deref()),
            (&scopes).into(),
            (&token.name).into(),
            ttl_micros.into(),
        ];

        session.execute(Statement::InsertToken, &params).await?;
        let known = find(session, &token.id)
            .await?
            .ok_or_else(|| SqlError::internal("the token's row is gone"))?;
        if known.digest != token.digest {
            let taken = Invalid::new(
                "tokenId",
                "is taken",
                "the id of a token that is not known yet",
            );
            return Err(SqlError::Store(taken.into()));
        }

        Ok(known.token)
    }
}

/// The token with this id.
#[derive(Debug)]
pub(crate) struct FindToken {
    pub(crate) id: String,
}

#[async_trait]
impl Operation for FindToken {
    type Output = Option<KnownToken>;
    const MODE: Mode = Mode::ReadOnly;

    async fn run(&self, session: &mut dyn Session) -> Result<Option<KnownToken>, SqlError> {
        find(session, &self.id).await
    }
}

async fn find(session: &mut dyn Session, id: &str) -> Result<Option<KnownToken>, SqlError> {
    let clock = session.clock();
    let rows = session
        .fetch(Statement::FindToken, &[clock.into(), id.into()])
        .await?;
    rows.first().map(record::known_token).transpose()
}

/// A page of all tokens.
#[derive(Debug)]
pub(crate) struct ListTokens {
    pub(crate) after: String,
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for ListTokens {
    type Output = Vec<AccessToken>;
    const MODE: Mode = Mode::ReadOnly;

    fn check(&self) -> Result<(), Invalid> {
        check_limit(self.limit, bounds::PAGE_SIZE)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<AccessToken>, SqlError> {
        let rows = session
            .fetch(
                Statement::ListTokens,
                &[(&self.after).into(), self.limit.into()],
            )
            .await?;
        rows.iter().map(record::access_token).collect()
    }
}

/// Records the use of a token.
#[derive(Debug)]
pub(crate) struct TouchToken {
    pub(crate) id: String,
}

#[async_trait]
impl Operation for TouchToken {
    type Output = ();
    const MODE: Mode = Mode::OneStatement;

    async fn run(&self, session: &mut dyn Session) -> Result<(), SqlError> {
        let clock = session.clock();
        let every = i64::try_from(TOUCH_EVERY_MS * 1_000).unwrap_or(i64::MAX);
        session
            .execute(
                Statement::TouchToken,
                &[clock.into(), (&self.id).into(), every.into()],
            )
            .await?;

        Ok(())
    }
}

/// Removes tokens that ended long ago. It reads all tokens, and keeps them few.
#[derive(Debug)]
pub(crate) struct PruneTokens {
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for PruneTokens {
    type Output = usize;
    const MODE: Mode = Mode::OneStatement;

    fn check(&self) -> Result<(), Invalid> {
        check_limit(self.limit, bounds::MAINTENANCE_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<usize, SqlError> {
        let clock = session.clock();
        let keep = i64::try_from(KEEP_ENDED_MS * 1_000).unwrap_or(i64::MAX);
        let params = [clock.into(), keep.into(), self.limit.into()];
        let removed = session.execute(Statement::PruneTokens, &params).await?;
        Ok(usize::try_from(removed).unwrap_or(usize::MAX))
    }
}

/// Revokes a token permanently.
#[derive(Debug)]
pub(crate) struct RevokeToken {
    pub(crate) id: String,
}

#[async_trait]
impl Operation for RevokeToken {
    type Output = Option<AccessToken>;

    async fn run(&self, session: &mut dyn Session) -> Result<Option<AccessToken>, SqlError> {
        let clock = session.clock();
        session
            .execute(Statement::RevokeToken, &[clock.into(), (&self.id).into()])
            .await?;
        Ok(find(session, &self.id).await?.map(|known| known.token))
    }
}
