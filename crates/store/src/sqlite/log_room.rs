//! Preallocates the write-ahead log.
//!
//! A commit that grows the log waits until the file system has allocated blocks and recorded the
//! new length. After each checkpoint SQLite reuses the log from the front. So preallocation speeds
//! up the commits between the opening of the file and the first checkpoint. If it fails, the store
//! opens all the same.

use std::fs::{File, OpenOptions};
use std::io;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use rustix::fs::{FallocateFlags, fallocate, fstatfs, fstatvfs};
use rustix::process::{Resource, getrlimit};

use super::connection::LOCK_WAIT;
use crate::sql_error::SqlError;

/// About the size of the log between two checkpoints (`wal_autocheckpoint`).
const BYTES: u64 = 32 << 20;
/// The log takes at most this fraction of the free space. The database and other files need space
/// too.
const PART_OF_FREE: u64 = 8;
/// File systems in memory, by their numbers in Linux (tmpfs, ramfs). Preallocation there would use
/// memory and save no time.
const MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Extends the log to its full length, unless the disk is short of space or another connection is
/// writing. The bytes after the last commit are harmless: SQLite stops at the first frame that does
/// not continue the ones before.
pub(super) fn make(connection: &Connection) -> Result<(), SqlError> {
    connection.busy_timeout(std::time::Duration::ZERO)?;
    if let Err(error) = lengthen_alone(connection) {
        tracing::debug!(%error, "the write-ahead log grows as it is written");
    }
    connection.busy_timeout(LOCK_WAIT)?;
    Ok(())
}

/// Extends the log under the write lock, so that no other connection changes its length.
fn lengthen_alone(connection: &Connection) -> io::Result<()> {
    let alone = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
        .map_err(io::Error::other)?;
    let path = connection.path().filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| io::Error::other("the store has no file"))?;
    let log = OpenOptions::new().write(true).open(format!("{path}-wal"))?;
    let lengthened = lengthen(&log, |length, wanted| {
        fallocate(&log, FallocateFlags::empty(), length, wanted)
    });

    alone.rollback().map_err(io::Error::other)?;
    lengthened
}

fn lengthen(
    log: &File,
    allocate: impl FnOnce(u64, u64) -> rustix::io::Result<()>,
) -> io::Result<()> {
    let length = log.metadata()?.len();
    let wanted = wanted_bytes(length, room_for(log)?);
    if wanted == 0 {
        return Ok(());
    }

    // A full disk keeps a partial allocation; cut the log back to its old length.
    allocate(length, wanted).or_else(|error| {
        log.set_len(length)?;
        Err(error.into())
    })
}

/// The free bytes for a log; 0 where preallocation does not help.
fn room_for(log: &File) -> io::Result<u64> {
    // A process that exceeds its file size limit is killed by a signal.
    let may_be_long = getrlimit(Resource::Fsize)
        .current
        .is_none_or(|most| most >= BYTES);
    let is_memory = u64::try_from(fstatfs(log)?.f_type).is_ok_and(|kind| MEMORY.contains(&kind));
    let disk = fstatvfs(log)?;

    Ok(if may_be_long && !is_memory {
        disk.f_bavail.saturating_mul(disk.f_frsize)
    } else {
        0
    })
}

/// The bytes to add to a log of this length on a disk with this much free.
const fn wanted_bytes(length: u64, free_bytes: u64) -> u64 {
    let wanted = BYTES.saturating_sub(length);
    if wanted.saturating_mul(PART_OF_FREE) > free_bytes {
        0
    } else {
        wanted
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::{
        SqlStore, StoreOptions,
        sqlite::{connection, file},
    };

    /// The message of tests that need free disk space.
    const DISK: &str =
        "this test needs 256 MiB free below `target`, on a file system with fallocate";

    struct Folder(PathBuf);

    impl Folder {
        /// Beside the test binary: the temporary folder may be in memory.
        fn new() -> Self {
            let beside = std::env::current_exe().unwrap().with_file_name("log-room");
            let folder = beside.join(format!("{:016x}", crate::random::next_u64()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn open(&self) -> Connection {
            let path = file::resolved(&self.0.join("tasks.db"));
            file::make_if_missing(&path).unwrap();
            connection::writer(&path).unwrap()
        }

        fn log_bytes(&self) -> u64 {
            std::fs::metadata(self.0.join("tasks.db-wal"))
                .unwrap()
                .len()
        }

        /// A copy of the files as a crash would leave them.
        fn as_after_a_crash(&self) -> Self {
            let copy = Self::new();
            for name in ["tasks.db", "tasks.db-wal"] {
                std::fs::copy(self.0.join(name), copy.0.join(name)).unwrap();
            }
            copy
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            // A failed cleanup must not hide why a test failed.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn write(connection: &Connection, rows: std::ops::Range<i64>) {
        for row in rows {
            assert_eq!(
                connection
                    .execute("INSERT INTO t VALUES (?1)", [row])
                    .unwrap(),
                1
            );
        }
    }

    fn rows(folder: &Folder) -> i64 {
        let connection = folder.open();
        let sound: String = connection
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(sound, "ok");
        connection
            .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
            .unwrap()
    }

    #[test]
    fn every_commit_before_and_after_is_there_after_a_crash() {
        let folder = Folder::new();
        let connection = folder.open();
        connection
            .execute_batch("CREATE TABLE t (n integer)")
            .unwrap();
        write(&connection, 0..100);
        make(&connection).unwrap();
        assert_eq!(folder.log_bytes(), BYTES, "{DISK}");
        assert_eq!(rows(&folder.as_after_a_crash()), 100);

        write(&connection, 100..300);
        assert_eq!(rows(&folder.as_after_a_crash()), 300);

        // SQLite now reuses the log from the front, over old frames.
        connection
            .query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))
            .unwrap();
        write(&connection, 300..310);
        assert_eq!(rows(&folder.as_after_a_crash()), 310);
    }

    #[test]
    fn a_new_file_has_room_at_once_also_behind_a_link() {
        let folder = Folder::new();
        let links = Folder::new();
        std::os::unix::fs::symlink(folder.0.join("tasks.db"), links.0.join("tasks.db")).unwrap();
        let connection = links.open();
        make(&connection).unwrap();
        assert_eq!(folder.log_bytes(), BYTES, "{DISK}");
        make(&connection).unwrap();
        assert_eq!(folder.log_bytes(), BYTES, "once");
        connection
            .execute_batch("CREATE TABLE t (n integer)")
            .unwrap();

        assert_eq!(rows(&folder.as_after_a_crash()), 0);
    }

    #[test]
    fn no_operation_waits_for_another_writer() {
        let folder = Folder::new();
        let ours = folder.open();
        let theirs = folder.open();
        theirs
            .execute_batch("CREATE TABLE t (n integer); BEGIN IMMEDIATE")
            .unwrap();
        write(&theirs, 0..10);
        let before = folder.log_bytes();
        let asked = std::time::Instant::now();

        make(&ours).unwrap();
        assert!(asked.elapsed() < LOCK_WAIT);
        assert_eq!(
            folder.log_bytes(),
            before,
            "the log does not grow while another connection writes"
        );
        theirs.execute_batch("COMMIT").unwrap();
        make(&ours).unwrap();

        write(&ours, 10..20);
        assert_eq!(
            (folder.log_bytes(), rows(&folder.as_after_a_crash())),
            (BYTES, 20),
            "{DISK}"
        );
    }

    #[test]
    fn a_disk_that_is_full_in_the_middle_leaves_the_log_as_it_was() {
        let folder = Folder::new();
        let connection = folder.open();
        connection
            .execute_batch("CREATE TABLE t (n integer)")
            .unwrap();
        write(&connection, 0..100);
        let before = folder.log_bytes();
        let log = folder.0.join("tasks.db-wal");
        let log = OpenOptions::new().write(true).open(log).unwrap();

        let full = lengthen(&log, |length, wanted| {
            log.set_len(length + wanted / 2).unwrap();
            Err(rustix::io::Errno::NOSPC)
        });
        assert!(full.is_err(), "{DISK}");
        assert_eq!(
            (folder.log_bytes(), rows(&folder.as_after_a_crash())),
            (before, 100)
        );
    }

    #[tokio::test]
    async fn a_store_has_room_from_its_opening_to_its_close_and_who_stands_beside_asks_for_none() {
        let folder = Folder::new();
        let url = format!("sqlite://{}", folder.0.join("tasks.db").display());
        let of = |is_beside| StoreOptions {
            is_beside,
            ..StoreOptions::default()
        };
        let beside = SqlStore::open(&url, of(true)).await.unwrap();

        assert!(folder.log_bytes() < BYTES);
        let store = SqlStore::open(&url, of(false)).await.unwrap();
        assert_eq!(folder.log_bytes(), BYTES, "{DISK}");
        beside.close().await;
        store.close().await;
        assert!(!folder.0.join("tasks.db-wal").exists());
    }

    #[test]
    fn a_disk_that_is_short_of_room_is_left_alone() {
        assert_eq!(wanted_bytes(0, BYTES * PART_OF_FREE), BYTES);
        assert_eq!(wanted_bytes(0, BYTES * PART_OF_FREE - 1), 0);
        assert_eq!(wanted_bytes(BYTES - 10, 80), 10);
        assert_eq!(wanted_bytes(BYTES, 0), 0);
        assert_eq!(wanted_bytes(BYTES + 1, u64::MAX), 0);
    }
}
