//! Access tokens.

use async_trait::async_trait;
use longhaul_domain::{
    AccessToken, KnownToken, NewAccessToken, StoreError, contract::store::Tokens,
};

use super::SqlStore;
use crate::operations::tokens::{FindToken, ListTokens, PruneTokens, RevokeToken, TouchToken};

#[async_trait]
impl Tokens for SqlStore {
    async fn create_token(&self, token: &NewAccessToken) -> Result<AccessToken, StoreError> {
        self.run("create_token", token.clone()).await
    }

    async fn find_token(&self, id: &str) -> Result<Option<KnownToken>, StoreError> {
        let id = id.to_owned();
        self.run("find_token", FindToken { id }).await
    }

    async fn list_tokens(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<AccessToken>, StoreError> {
        let after = after.unwrap_or_default().to_owned();
        self.run("list_tokens", ListTokens { after, limit }).await
    }

    async fn touch_token(&self, id: &str) -> Result<(), StoreError> {
        let id = id.to_owned();
        self.run("touch_token", TouchToken { id }).await
    }

    async fn revoke_token(&self, id: &str) -> Result<Option<AccessToken>, StoreError> {
        let id = id.to_owned();
        self.run("revoke_token", RevokeToken { id }).await
    }

    async fn prune_tokens(&self, limit: usize) -> Result<usize, StoreError> {
        self.run("prune_tokens", PruneTokens { limit }).await
    }
}
