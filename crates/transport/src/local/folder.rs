//! Open folder handles. A name below such a folder cannot lead anywhere else.
//!
//! Each step opens one name below an open folder and refuses links. A path is never resolved twice,
//! so a link cannot be put in between.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Only the owner may read and write the files of tasks.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const FOLDER_MODE: Mode = Mode::RWXU;
const FOLDER_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// The root folder. The operator chose its path, so links in it are followed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Ok(Self(rustix::fs::open(path, FOLDER_FLAGS, Mode::empty())?))
    }

    /// A folder below this one, if there is one. A link does not count.
    pub(super) fn find(&self, name: &str) -> io::Result<Option<Self>> {
        let opened = rustix::fs::openat(
            &self.0,
            name,
            FOLDER_FLAGS | OFlags::NOFOLLOW,
            Mode::empty(),
        );
        Ok(unless_absent(opened)?.map(Self))
    }

    /// A folder below this one. A missing one is made, durably.
    pub(super) fn make(&self, name: &str) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.0, name, FOLDER_MODE) {
            Ok(()) => self.sync()?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }

        Ok(Self(rustix::fs::openat(
            &self.0,
            name,
            FOLDER_FLAGS | OFlags::NOFOLLOW,
            Mode::empty(),
        )?))
    }

    /// A plain file in this folder, if there is one. Links and special files do not count.
    pub(super) fn find_file(&self, name: &str) -> io::Result<Option<File>> {
        // Opening a pipe would block otherwise.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = unless_absent(rustix::fs::openat(&self.0, name, flags, Mode::empty()))?;
        let file = opened.map(File::from);
        Ok(match file {
            Some(file) if file.metadata()?.is_file() => Some(file),
            Some(_) | None => None,
        })
    }

    /// A new, empty file. An error if the name is taken.
    pub(super) fn create_file(&self, name: &str) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, flags, FILE_MODE)?.into())
    }

    pub(super) fn rename_file(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file, or a link itself. A missing one is no error.
    pub(super) fn remove_file(&self, name: &str) -> io::Result<()> {
        unless_absent(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())).map(drop)
    }

    /// Removes a folder below this one unless something is in it.
    pub(super) fn remove_if_empty(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            removed => unless_absent(removed).map(drop),
        }
    }

    /// Names in this folder and whether each is a folder itself.
    pub(super) fn list(&self) -> io::Result<Vec<(String, bool)>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            // A name that is not UTF-8 was not made here and is left alone.
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };

            if ![".", ".."].contains(&name) {
                names.push((name.to_owned(), self.is_folder(name, entry.file_type())?));
            }
        }

        Ok(names)
    }

    /// Makes all changes of the names in this folder durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.0.as_fd())?)
    }

    /// Opens the entry when the file system does not report its type.
    fn is_folder(&self, name: &str, listed: FileType) -> io::Result<bool> {
        if listed != FileType::Unknown {
            return Ok(listed == FileType::Directory);
        }
        Ok(self.find(name)?.is_some())
    }
}

/// A missing name is absent, and so is a link, or a file where a folder should be.
fn unless_absent<T>(result: Result<T, Errno>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::MLINK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
