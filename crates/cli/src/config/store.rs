//! The sections `store` and `artifacts`: where tasks and their files are stored.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use longhaul::{
    FileLife,
    operating::{StoreOptions, WireDuration},
};

use super::{Config, SecretText, SecretUrl, check_waits, keys::section};

section! {
    /// The database.
    pub struct Store {
        /// Where tasks are stored: `sqlite://path/to/file.db`, `postgres://…` or `mysql://…`. A
        /// SQLite file serves one process; several nodes need a database server.
        #[variable("LONGHAUL_STORE")]
        pub url: SecretUrl = SecretUrl::new("sqlite://longhaul-data/longhaul.db"),
        /// Connections of this process to the database server; PostgreSQL gets up to two more for
        /// notifications between nodes. Rarely worth raising: many operations share one commit. The
        /// sum over all nodes must stay below the server's own limit.
        pub max_connections: u32 = 10,
        /// Whether a node migrates the schema when it starts. Turn it off where migration is a
        /// separate step (`longhaul migrate`); a node then refuses to start on an old schema.
        pub migrate: bool = true,
    }
}

section! {
    /// Files that tasks make.
    pub struct Artifacts with life: FileLife {
        /// Where files that tasks make are stored: `file://folder`. Without it, a folder beside the
        /// SQLite file, or `longhaul-artifacts` in the working directory.
        #[variable("LONGHAUL_ARTIFACTS")]
        pub url: Option<SecretUrl> = None,
        /// The key that signs the URLs of files, 64 hexadecimal digits, for nodes that share their
        /// files: `openssl rand -hex 32`. Without it, each folder of files has a key beside it.
        pub key: Option<SecretText> = None,
        /// How long files are kept for tasks without a tier or of the tier `free`.
        pub keep_free: WireDuration = WireDuration(life.free),
        /// The same for the tier `vip`.
        pub keep_vip: WireDuration = WireDuration(life.vip),
        /// The same for the tier `enterprise`.
        pub keep_enterprise: WireDuration = WireDuration(life.enterprise),
    }
}

impl Store {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let scheme = self.url.scheme();
        ensure!(
            ["sqlite", "postgres", "postgresql", "mysql", "mariadb"].contains(&scheme),
            "store.url starts with {scheme:?}; allowed: sqlite://path/to/file.db, postgres://…, \
             mysql://…"
        );
        ensure!(
            self.max_connections >= 2,
            "store.max_connections is below 2: a node needs at least two"
        );

        Ok(())
    }
}

impl Artifacts {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if let Some(url) = &self.url {
            let folder = url.reveal().strip_prefix("file://").unwrap_or_default();
            ensure!(
                !folder.is_empty(),
                "artifacts.url is {url}; this version supports only file://folder"
            );
        }

        self.signing_key()?;
        check_waits(&[
            ("artifacts.keep_free", self.keep_free),
            ("artifacts.keep_vip", self.keep_vip),
            ("artifacts.keep_enterprise", self.keep_enterprise),
        ])
    }

    /// The configured key that signs URLs, if there is one.
    pub fn signing_key(&self) -> anyhow::Result<Option<[u8; 32]>> {
        let Some(text) = &self.key else {
            return Ok(None);
        };
        let key = read_key(text.reveal()).context(
            "artifacts.key is not 64 hexadecimal digits; openssl rand -hex 32 makes one",
        )?;

        Ok(Some(key))
    }

    pub fn life(&self) -> FileLife {
        FileLife {
            free: self.keep_free.0,
            vip: self.keep_vip.0,
            enterprise: self.keep_enterprise.0,
        }
    }
}

fn read_key(digits: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    hex::decode_to_slice(digits, &mut key).ok()?;
    Some(key)
}

impl Config {
    pub fn store_options(&self) -> StoreOptions {
        StoreOptions {
            max_connections: self.store.max_connections,
            ..StoreOptions::default()
        }
    }

    /// The file of an embedded store.
    pub fn store_file(&self) -> Option<PathBuf> {
        let (scheme, path) = self.store.url.reveal().split_once("://")?;
        if scheme != "sqlite" {
            return None;
        }

        Some(PathBuf::from(path.split('?').next().unwrap_or(path)))
    }

    /// The folder for files that tasks make.
    pub fn artifacts_folder(&self) -> PathBuf {
        if let Some(url) = &self.artifacts.url {
            return PathBuf::from(url.reveal().strip_prefix("file://").unwrap_or_default());
        }

        match self.store_file() {
            Some(file) => PathBuf::from(format!("{}.artifacts", file.display())),
            None => Path::new("longhaul-artifacts").to_owned(),
        }
    }
}
