//! Access tokens.

use async_trait::async_trait;

use crate::{
    access_token::{AccessToken, KnownToken, NewAccessToken},
    error::StoreError,
};

/// The access tokens of the API.
#[async_trait]
pub trait Tokens: Send + Sync {
    /// Saves a token. The same again, after an outcome that was unknown, changes nothing; another
    /// token with the same id is refused.
    async fn create_token(&self, token: &NewAccessToken) -> Result<AccessToken, StoreError>;

    /// The token with this id, expired and revoked ones included, and the store's time.
    async fn find_token(&self, id: &str) -> Result<Option<KnownToken>, StoreError>;

    /// Tokens in the order of their ids: those after `after`, at most `limit`.
    async fn list_tokens(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<AccessToken>, StoreError>;

    /// Notes that a token is used, unless that was noted in the last
    /// [`TOUCH_EVERY_MS`](crate::access_token::TOUCH_EVERY_MS).
    async fn touch_token(&self, id: &str) -> Result<(), StoreError>;

    /// Revokes a token for good. Answers with it, or with nothing when there is none.
    async fn revoke_token(&self, id: &str) -> Result<Option<AccessToken>, StoreError>;

    /// Removes tokens that ended [`KEEP_ENDED_MS`](crate::access_token::KEEP_ENDED_MS) ago or
    /// earlier, at most `limit`, and answers with their number.
    async fn prune_tokens(&self, limit: usize) -> Result<usize, StoreError>;
}
