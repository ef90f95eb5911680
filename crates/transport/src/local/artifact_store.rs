//! Artifacts in a local folder, one file each: `{task}/{attempt}/{random}`.
//!
//! A file starts with its description, so that both appear at once: the file is written under a
//! temporary name, made durable and then renamed. After a crash, a partial file has a name that no
//! key can have. It is removed together with its key.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::{
    TaskId,
    bounds::ARTIFACT_BYTES,
    contract::artifact_store::{Artifact, ArtifactError, ArtifactStore, NewArtifact},
};

use super::folder::Folder;
use crate::artifact::ArtifactKey;

/// The first bytes of each file: its type and the version of its layout.
const MAGIC: &[u8; 8] = b"LHFILE1\n";
/// The most bytes of a description. The bounds of its fields are well below this.
const DESCRIPTION_BYTES: u32 = 16 * 1024;
/// How often a `put` is tried. Removing the last file of a task also removes its folder, perhaps
/// just when another file is put there.
const PUT_TRIES: usize = 10;

/// Artifacts below one folder.
#[derive(Debug, Clone)]
pub struct FolderArtifactStore {
    root: Arc<Folder>,
}

impl FolderArtifactStore {
    /// Opens the folder and makes it if it is missing. Nothing else should write there.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ArtifactError> {
        let root = Folder::open(path.as_ref()).map_err(unavailable)?;
        Ok(Self {
            root: Arc::new(root),
        })
    }

    /// Runs `work` on a thread where it may block on files.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder) -> Result<T, ArtifactError> + Send + 'static,
    ) -> Result<T, ArtifactError> {
        let root = Arc::clone(&self.root);
        // File systems block. A caller that goes away does not stop the work: a file is written
        // whole.
        let done = tokio::task::spawn_blocking(move || work(&root)).await;
        done.unwrap_or_else(|error| Err(ArtifactError::Unavailable(error.to_string())))
    }
}

#[async_trait]
impl ArtifactStore for FolderArtifactStore {
    async fn put(&self, artifact: NewArtifact<'_>) -> Result<Artifact, ArtifactError> {
        artifact.check()?;
        let key = ArtifactKey::of(&artifact);
        let bytes = artifact.bytes.to_vec();
        let stored = Artifact {
            key: key.to_string(),
            file_name: artifact.file_name.to_owned(),
            content_type: artifact.content_type.to_owned(),
            bytes: artifact.bytes.len() as u64,
        };

        self.blocking(move |root| {
            put(root, &key, &stored, &bytes).map_err(unavailable)?;
            Ok(stored)
        })
        .await
    }

    async fn get(&self, key: &str) -> Result<(Artifact, Vec<u8>), ArtifactError> {
        let key: ArtifactKey = key.parse()?;
        self.blocking(move |root| {
            get(root, &key)
                .map_err(unavailable)?
                .ok_or(ArtifactError::NotFound)
        })
        .await
    }

    async fn read(&self, key: &str, offset: u64, length: u64) -> Result<Vec<u8>, ArtifactError> {
        let key: ArtifactKey = key.parse()?;
        self.blocking(move |root| {
            read_span(root, &key, offset, length)
                .map_err(unavailable)?
                .ok_or(ArtifactError::NotFound)
        })
        .await
    }

    async fn remove(&self, key: &str) -> Result<(), ArtifactError> {
        let key: ArtifactKey = key.parse()?;
        self.blocking(move |root| remove(root, &key).map_err(unavailable))
            .await
    }

    async fn remove_all(&self, task: TaskId) -> Result<(), ArtifactError> {
        self.blocking(move |root| remove_all(root, &task.to_string()).map_err(unavailable))
            .await
    }
}

fn unavailable(error: io::Error) -> ArtifactError {
    ArtifactError::Unavailable(error.to_string())
}

fn put(root: &Folder, key: &ArtifactKey, artifact: &Artifact, bytes: &[u8]) -> io::Result<()> {
    for _ in 1..PUT_TRIES {
        match try_put(root, key, artifact, bytes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => return done,
        }
    }
    try_put(root, key, artifact, bytes)
}

fn try_put(root: &Folder, key: &ArtifactKey, artifact: &Artifact, bytes: &[u8]) -> io::Result<()> {
    let [task, attempt, name] = key.segments();
    let folder = root.make(&task)?.make(&attempt)?;
    let temporary = temporary_name(&name);
    let file = folder.create_file(&temporary)?;

    // The contents are durable before the file gets its final name.
    let written =
        write_file(file, artifact, bytes).and_then(|()| folder.rename_file(&temporary, &name));
    if written.is_err() {
        // The first error is the one to report. A file that stays is removed with the task.
        let _ = folder.remove_file(&temporary);
    }

    written?;
    folder.sync()
}

/// The name of a file until it is complete. No key has such a name.
fn temporary_name(name: &str) -> String {
    format!("{name}.part")
}

fn write_file(mut file: File, artifact: &Artifact, bytes: &[u8]) -> io::Result<()> {
    let description = serde_json::to_vec(artifact)?;
    let length = u32::try_from(description.len()).map_err(io::Error::other)?;

    file.write_all(MAGIC)?;
    file.write_all(&length.to_le_bytes())?;
    file.write_all(&description)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn find(root: &Folder, key: &ArtifactKey) -> io::Result<Option<File>> {
    let [task, attempt, name] = key.segments();
    let Some(folder) = root.find(&task)? else {
        return Ok(None);
    };
    let Some(folder) = folder.find(&attempt)? else {
        return Ok(None);
    };

    folder.find_file(&name)
}

fn read_span(
    root: &Folder,
    key: &ArtifactKey,
    offset: u64,
    length: u64,
) -> io::Result<Option<Vec<u8>>> {
    let Some(mut file) = find(root, key)? else {
        return Ok(None);
    };
    let artifact = read_description(&mut file)?;
    if artifact.key != key.to_string() {
        return Err(damaged());
    }

    let offset = i64::try_from(offset.min(artifact.bytes)).map_err(io::Error::other)?;
    file.seek(io::SeekFrom::Current(offset))?;
    let mut bytes = Vec::new();
    file.take(length.min(ARTIFACT_BYTES as u64))
        .read_to_end(&mut bytes)?;

    Ok(Some(bytes))
}

fn get(root: &Folder, key: &ArtifactKey) -> io::Result<Option<(Artifact, Vec<u8>)>> {
    let Some(file) = find(root, key)? else {
        return Ok(None);
    };
    let (artifact, bytes) = read_file(file)?;
    if artifact.key != key.to_string() || artifact.bytes != bytes.len() as u64 {
        return Err(damaged());
    }

    Ok(Some((artifact, bytes)))
}

fn read_file(mut file: File) -> io::Result<(Artifact, Vec<u8>)> {
    let artifact = read_description(&mut file)?;
    let mut bytes = Vec::new();
    file.take(ARTIFACT_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok((artifact, bytes))
}

/// Reads the description at the start of a file. The file then stands at the first of its bytes.
fn read_description(file: &mut File) -> io::Result<Artifact> {
    let mut magic = [0; MAGIC.len()];
    let mut length = [0; 4];
    file.read_exact(&mut magic)?;
    file.read_exact(&mut length)?;

    let length = u32::from_le_bytes(length);
    if &magic != MAGIC || length > DESCRIPTION_BYTES {
        return Err(damaged());
    }

    let mut description = Vec::new();
    Read::by_ref(file)
        .take(u64::from(length))
        .read_to_end(&mut description)?;

    Ok(serde_json::from_slice(&description)?)
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the file is damaged")
}

fn remove(root: &Folder, key: &ArtifactKey) -> io::Result<()> {
    let [task, attempt, name] = key.segments();
    let Some(of_task) = root.find(&task)? else {
        return Ok(());
    };
    let Some(of_attempt) = of_task.find(&attempt)? else {
        return Ok(());
    };

    of_attempt.remove_file(&name)?;
    of_attempt.remove_file(&temporary_name(&name))?;
    of_attempt.sync()?;
    of_task.remove_if_empty(&attempt)?;

    root.remove_if_empty(&task)
}

fn remove_all(root: &Folder, task: &str) -> io::Result<()> {
    let Some(of_task) = root.find(task)? else {
        return Ok(());
    };

    for (name, is_folder) in of_task.list()? {
        if !is_folder {
            of_task.remove_file(&name)?;
            continue;
        }

        let Some(of_attempt) = of_task.find(&name)? else {
            continue;
        };
        for (file, _) in of_attempt.list()? {
            of_attempt.remove_file(&file)?;
        }

        of_task.remove_if_empty(&name)?;
    }

    root.remove_if_empty(task)?;
    root.sync()
}
