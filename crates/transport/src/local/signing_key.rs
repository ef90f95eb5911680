//! The key that signs download URLs, in a local file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

const KEY_BYTES: usize = 32;

/// The key in this file. A missing file is created, readable by its owner alone.
pub fn signing_key(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    match File::open(path) {
        Ok(file) => read(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path),
        Err(error) => Err(error),
    }
}

fn read(mut file: File) -> io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    file.read_exact(&mut key)?;
    Ok(key)
}

/// The file is written under another name and then linked. So a reader never finds half a key, and
/// of two processes that make one, only the first succeeds.
fn make(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }

    let mut key = [0; KEY_BYTES];
    rand::Rng::fill_bytes(&mut rand::rng(), &mut key);

    let half_written = path.with_extension(format!("{}.part", crate::random::uuid()));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&half_written)?;
    file.write_all(&key)?;
    file.sync_all()?;

    let linked = std::fs::hard_link(&half_written, path);
    std::fs::remove_file(&half_written)?;

    match linked {
        Ok(()) => Ok(key),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(File::open(path)?),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below").join("artifacts.key");
        let key = signing_key(&path).unwrap();

        assert_eq!(signing_key(&path).unwrap(), key);
        assert_ne!(key, [0; KEY_BYTES]);
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );

        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }
}
