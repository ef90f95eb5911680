//! Where files of tasks are, how long they are kept, and what signs their URLs.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_domain::contract::ArtifactStore;
use longhaul_engine::{
    Files,
    files::{FileLife, UrlSigner},
};
use longhaul_transport::local::signing_key;

use super::Builder;
use crate::artifacts::LazyArtifacts;

/// The default folder for files if the store is a server.
const FOLDER: &str = "longhaul-artifacts";

/// The settings for files of tasks.
#[derive(Debug)]
pub(crate) struct FileSettings {
    pub(crate) store: Arc<dyn ArtifactStore>,
    life: FileLife,
    /// The file of the key that signs file URLs, unless a key was given.
    key_file: PathBuf,
    key: Option<[u8; 32]>,
}

impl Default for FileSettings {
    fn default() -> Self {
        let folder = PathBuf::from(FOLDER);
        Self {
            key_file: key_beside(folder.clone()),
            store: Arc::new(LazyArtifacts::new(folder)),
            life: FileLife::default(),
            key: None,
        }
    }
}

impl FileSettings {
    /// The files of this process.
    pub(crate) fn open(self) -> Files {
        let key_file = self.key_file;
        let signer = match self.key {
            Some(key) => UrlSigner::new(move || Ok(key)),
            // Created on first use.
            None => UrlSigner::new(move || {
                signing_key(&key_file).map_err(|error| format!("{}: {error}", key_file.display()))
            }),
        };

        Files {
            store: self.store,
            signer,
            life: self.life,
        }
    }
}

impl Builder {
    /// The folder for files of tasks. It is created with the first file. So is the key that signs
    /// file URLs: a file beside the folder, with `.key` after its name.
    #[must_use]
    pub fn artifacts(mut self, folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        self.files.key_file = key_beside(folder.clone());
        self.files.store = Arc::new(LazyArtifacts::new(folder));
        self
    }

    /// The key that signs file URLs, for several processes that share files.
    #[must_use]
    pub const fn artifact_key(mut self, key: [u8; 32]) -> Self {
        self.files.key = Some(key);
        self
    }

    /// How long files are kept, by tier.
    #[must_use]
    pub const fn file_life(mut self, life: FileLife) -> Self {
        self.files.life = life;
        self
    }
}

/// The key file beside its folder.
fn key_beside(mut folder: PathBuf) -> PathBuf {
    folder.as_mut_os_string().push(".key");
    folder
}
