//! Folders that are held open, so that names below them cannot lead anywhere else.
//!
//! Each step opens one name below the folder that is held and refuses links. A path is never looked up twice, so nobody can
//! put a link in between.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Readable by the owner alone: what tasks make is nobody else's.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const FOLDER_MODE: Mode = Mode::RWXU;
const FOLDER_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// A folder that is held open.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// The folder that everything is below. It is named by whoever runs the program, and links in its path are theirs.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Ok(Self(rustix::fs::open(path, FOLDER_FLAGS, Mode::empty())?))
    }

    /// A folder below this one, if there is one. A link is none.
    pub(super) fn find(&self, name: &str) -> io::Result<Option<Self>> {
        let opened = rustix::fs::openat(
            &self.0,
            name,
            FOLDER_FLAGS | OFlags::NOFOLLOW,
            Mode::empty(),
        );
        Ok(unless_absent(opened)?.map(Self))
    }

    /// A folder below this one, made durably if it is not there.
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

    /// A file in this folder, if there is one. Links and whatever else is no plain file are none.
    pub(super) fn find_file(&self, name: &str) -> io::Result<Option<File>> {
        // A pipe would block whoever opens it.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = unless_absent(rustix::fs::openat(&self.0, name, flags, Mode::empty()))?;
        let file = opened.map(File::from);
        Ok(match file {
            Some(file) if file.metadata()?.is_file() => Some(file),
            Some(_) | None => None,
        })
    }

    /// A new, empty file; it is an error if the name is taken.
    pub(super) fn create_file(&self, name: &str) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, flags, FILE_MODE)?.into())
    }

    pub(super) fn rename_file(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file, or a link itself; one that is gone is no error.
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
            // A name that is no text was not made by us; what cannot be listed is left alone.
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if ![".", ".."].contains(&name) {
                names.push((name.to_owned(), self.is_folder(name, entry.file_type())?));
            }
        }
        Ok(names)
    }

    /// Makes what was created, renamed and removed in this folder durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.0.as_fd())?)
    }

    /// Not every file system says of what kind an entry is.
    fn is_folder(&self, name: &str, told: FileType) -> io::Result<bool> {
        if told != FileType::Unknown {
            return Ok(told == FileType::Directory);
        }
        Ok(self.find(name)?.is_some())
    }
}

/// What is not there, or is a link or a file where a folder should be, is absent.
fn unless_absent<T>(result: Result<T, Errno>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::MLINK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
