//! The store's file: it belongs to one process, and it must stay the file that was opened.
//!
//! A process keeps a file open after its deletion. What it writes then is lost, although every
//! commit succeeds. So each commit is followed by a look at the path before it is acknowledged.
//!
//! This module never opens the database itself: closing it again would release the locks that
//! SQLite holds on it for the whole process.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use longhaul_domain::StoreError;

/// Only the owner may read and write: the parameters of tasks are private.
const MODE: u32 = 0o600;

/// Which file a path names: its device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

impl Identity {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::from(&path.metadata()?))
    }
}

impl From<&std::fs::Metadata> for Identity {
    fn from(metadata: &std::fs::Metadata) -> Self {
        Self(metadata.dev(), metadata.ino())
    }
}

/// The file that the store opened.
#[derive(Debug)]
pub(super) struct StoreFile {
    path: PathBuf,
    identity: Identity,
    /// Why the file is no longer used. It stays lost when it is put back: another process may have
    /// written it since.
    lost: OnceLock<String>,
}

impl StoreFile {
    /// The file at `path`. Makes an empty one if there is none.
    pub(super) fn find_or_make(path: &Path) -> Result<Self, StoreError> {
        make_if_missing(path)?;
        let identity = Identity::of(path).map_err(|error| unusable(path, &error))?;

        Ok(Self {
            path: path.to_owned(),
            identity,
            lost: OnceLock::new(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The write-ahead log of the file. It exists while a connection is open.
    pub(super) fn log(&self) -> PathBuf {
        with_suffix(&self.path, "-wal")
    }

    /// Refuses once the path names another file or none.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.check_known()?;
        if identity_at(&self.path)? == Some(self.identity) {
            return Ok(());
        }

        Err(self.lose(&self.path))
    }

    /// Refuses once the path of the log names another file than `known`. The first look makes it
    /// known.
    pub(super) fn check_log(&self, known: &mut Option<Identity>) -> Result<(), StoreError> {
        let log = self.log();
        match (identity_at(&log)?, *known) {
            (Some(found), Some(known)) if found == known => Ok(()),
            (Some(found), None) => {
                *known = Some(found);
                Ok(())
            }
            (Some(_) | None, _) => Err(self.lose(&log)),
        }
    }

    /// Refuses if the file is already known to be lost.
    pub(super) fn check_known(&self) -> Result<(), StoreError> {
        match self.lost.get() {
            Some(why) => Err(StoreError::Unavailable(why.clone())),
            None => Ok(()),
        }
    }

    fn lose(&self, gone: &Path) -> StoreError {
        self.give_up(format!(
            "{} was deleted or replaced while the store was open; nothing is accepted any more",
            gone.display()
        ))
    }

    /// Uses the file no more. The first reason counts.
    pub(super) fn give_up(&self, why: String) -> StoreError {
        let mut is_first = false;
        let why = self.lost.get_or_init(|| {
            is_first = true;
            why
        });

        if is_first {
            tracing::error!(
                path = %self.path.display(),
                "{why}; stop this process, put the file back or restore a backup, and start again"
            );
        }

        StoreError::Unavailable(why.clone())
    }
}

/// Which file the path names, or none. A failed look is no answer: it says nothing about the file.
fn identity_at(path: &Path) -> Result<Option<Identity>, StoreError> {
    match Identity::of(path) {
        Ok(identity) => Ok(Some(identity)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(unusable(path, &error)),
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// The path without symbolic links, so that all processes find the same lock file.
pub(super) fn resolved(path: &Path) -> PathBuf {
    if let Ok(resolved) = path.canonicalize() {
        return resolved;
    }

    // The file does not exist yet. Its folder does, also that of the file behind a link.
    let target = match path.read_link() {
        Ok(target) => folder_of(path).join(target),
        Err(_) => path.to_owned(),
    };
    match (folder_of(&target).canonicalize(), target.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        (Ok(_) | Err(_), _) => target,
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn has_content(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.len() > 0)
}

fn unusable(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("{} cannot be used: {error}", path.display()))
}

/// Makes an empty file, which SQLite turns into a database. SQLite would give it the process's
/// default mode; the log has the mode of the file.
pub(super) fn make_if_missing(path: &Path) -> Result<(), StoreError> {
    if has_content(path) {
        return Ok(());
    }

    // SQLite deletes the log of an empty database, and with it commits of a database that was here.
    let log = with_suffix(path, "-wal");
    if has_content(&log) {
        let path = path.display();
        let log = log.display();
        return Err(StoreError::Unavailable(format!(
            "{path} is missing or empty, and {log} has commits of a database that was there: put \
             the database back, or move {log} away to begin with an empty store"
        )));
    }

    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(path);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(unusable(path, &error)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The lock that keeps the store to one process. It is on a file of its own, beside the database.
#[derive(Debug)]
pub(super) struct Lock {
    database: PathBuf,
    path: PathBuf,
    locked: Mutex<File>,
}

impl Lock {
    /// Takes the lock of the database for this process.
    pub(super) fn take(database: &Path) -> Result<Self, StoreError> {
        let path = with_suffix(database, ".lock");
        let is_known = path.exists();

        let locked = lock(&path).map_err(|error| match error {
            TryLockError::WouldBlock => open_elsewhere(database),
            TryLockError::Error(error) => StoreError::Unavailable(format!(
                "{}: cannot create its lock file, so make its folder first: {error}",
                database.display()
            )),
        })?;

        let is_new = !has_content(database) && !has_content(&with_suffix(database, "-wal"));
        if is_known && is_new {
            tracing::warn!(
                path = %database.display(),
                "no database is there, although one was opened there before; an empty store is made"
            );
        }

        Ok(Self {
            database: database.to_owned(),
            path,
            locked: Mutex::new(locked),
        })
    }

    /// Takes the lock again if its file was deleted. Gives the file up if another process was
    /// faster.
    pub(super) fn keep(&self, file: &StoreFile) {
        // Only the writer's thread and the close of the store use the lock; neither panics.
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = locked.metadata().is_ok_and(|metadata| {
            Identity::of(&self.path).is_ok_and(|found| found == Identity::from(&metadata))
        });
        if is_there {
            return;
        }

        match lock(&self.path) {
            Ok(again) => {
                tracing::warn!(path = %self.path.display(), "the lock file was deleted; it was made again");
                *locked = again;
            }
            Err(TryLockError::WouldBlock) => {
                file.give_up(open_elsewhere(&self.database).to_string());
            }
            // The folder is gone, too. The check of the database itself notices that.
            Err(TryLockError::Error(_)) => {}
        }
    }

    /// Lets other processes open the store.
    pub(super) fn release(&self) {
        let locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = locked.unlock() {
            tracing::warn!(%error, "the lock of the store's file could not be released");
        }
    }
}

/// Makes the lock file if there is none, and locks it. The lock ends with the process, so a crash
/// leaves no stale lock.
fn lock(path: &Path) -> Result<File, TryLockError> {
    loop {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .open(path)
            .map_err(TryLockError::Error)?;
        file.try_lock()?;

        // Another process may have deleted the file before it was locked.
        let locked = file.metadata().map_err(TryLockError::Error)?;
        if Identity::of(path).ok() == Some(Identity::from(&locked)) {
            return Ok(file);
        }
    }
}

fn open_elsewhere(database: &Path) -> StoreError {
    StoreError::Unavailable(format!(
        "{} is open in another process, or was opened twice in this one. An embedded store has one \
         process: stop the other one, or use PostgreSQL; within a process share what is open \
         (`Longhaul::client`)",
        database.display()
    ))
}
