//! A fresh, empty folder for each case.

use std::path::{Path, PathBuf};

use uuid::Uuid;

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct FreshFolder(PathBuf);

impl FreshFolder {
    pub(crate) fn make() -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("longhaul_test_{}", random_id().simple()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for FreshFolder {
    fn drop(&mut self) {
        // A folder that cannot be removed stays in the build folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn random_id() -> Uuid {
    let mut bytes = [0; 16];
    rand::Rng::fill_bytes(&mut rand::rng(), &mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}
