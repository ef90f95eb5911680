//! Opens a store for a program.

use longhaul_domain::{StoreError, contract::store::TaskReads as _};
use longhaul_store::{SqlStore, StoreOptions};

use crate::{Builder, Longhaul};

impl Longhaul {
    /// Opens `sqlite://file`, and with the features of these names `postgres://…` or `mysql://…`,
    /// and brings its schema up to date.
    pub async fn open(url: &str) -> Result<Builder, StoreError> {
        let store = SqlStore::open(url, StoreOptions::default()).await?;
        let is_embedded = store.is_embedded();
        let builder = Builder::on_database(store);

        // Files of a SQLite store are beside its file.
        match url.split_once("://") {
            Some((_, path)) if is_embedded => {
                let file = path.split('?').next().unwrap_or(path);
                Ok(builder.artifacts(format!("{file}.artifacts")))
            }
            Some(_) | None => Ok(builder),
        }
    }

    /// Uses a store that the caller opened. Its schema must match this program.
    /// [`Builder::artifacts`] sets the folder for files.
    pub async fn on(store: SqlStore) -> Result<Builder, StoreError> {
        store.check_schema().await?;
        store.now().await?;
        Ok(Builder::on_database(store))
    }
}
