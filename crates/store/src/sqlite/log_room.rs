//! Room for the write-ahead log on the disk, before it is needed.
//!
//! A commit that makes its file longer waits for the file system to find room and to note the new length, and one that finds
//! room does not. SQLite writes its log from the front again after each checkpoint, so this is about the commits between an
//! opening of the file and the first checkpoint. What is refused here is no reason not to open the file.

use std::fs::{File, OpenOptions};
use std::io;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use rustix::fs::{FallocateFlags, fallocate, fstatfs, fstatvfs};
use rustix::process::{Resource, getrlimit};

use super::connection::BUSY_TIMEOUT;
use crate::failure::Failure;

/// About as much as the log grows to between two checkpoints (`wal_autocheckpoint`).
const BYTES: u64 = 32 << 20;
/// The log takes at most this part of what is free: the file itself, and the files of others, need room as well.
const PART_OF_FREE: u64 = 8;
/// Disks that are memory, by the numbers that Linux gives them (tmpfs, ramfs). Room there is memory at once, and nothing is
/// waited for.
const MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Makes the log as long as it is going to be, unless the disk is short of room or somebody else writes just now. What stands
/// behind the last commit is never taken for one: SQLite reads up to the first frame that does not follow from those before.
pub(super) fn make(connection: &Connection) -> Result<(), Failure> {
    connection.busy_timeout(std::time::Duration::ZERO)?;
    if let Err(error) = lengthen_alone(connection) {
        tracing::debug!(%error, "the write-ahead log grows as it is written");
    }
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(())
}

/// While we may write, nobody else makes the log longer or shorter.
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
    // A disk that is full before the end keeps what it has given so far.
    allocate(length, wanted).or_else(|error| {
        log.set_len(length)?;
        Err(error.into())
    })
}

/// How many bytes are free for a log, on a disk where room is worth asking for.
fn room_for(log: &File) -> io::Result<u64> {
    // Whoever makes a file longer than the process may is ended by a signal.
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

/// How much longer a log of this length is made on a disk with so much free.
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
    use crate::{SqlStore, StoreOptions, sqlite::connection};

    /// Said by the tests that want a disk with room.
    const DISK: &str =
        "this test needs 256 MiB free below `target`, on a file system with fallocate";

    struct Folder(PathBuf);

    impl Folder {
        /// Beside what is built: the folder for temporary files may be memory.
        fn new() -> Self {
            let beside = std::env::current_exe().unwrap().with_file_name("log-room");
            let folder = beside.join(format!("{:016x}", crate::random::next_u64()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn open(&self) -> Connection {
            connection::writer(&self.0.join("tasks.db")).unwrap()
        }

        fn log_bytes(&self) -> u64 {
            std::fs::metadata(self.0.join("tasks.db-wal"))
                .unwrap()
                .len()
        }

        /// What a crash leaves behind, in a folder of its own.
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
            // What is left of a test that failed must not hide why.
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
        // From the front again, over frames of the time before.
        connection
            .query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))
            .unwrap();
        write(&connection, 300..310);
        assert_eq!(rows(&folder.as_after_a_crash()), 310);
    }

    #[test]
    fn a_new_file_has_room_at_once_also_behind_a_link() {
        let (folder, links) = (Folder::new(), Folder::new());
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
    fn nobody_waits_for_somebody_else_who_writes() {
        let folder = Folder::new();
        let (ours, theirs) = (folder.open(), folder.open());
        theirs
            .execute_batch("CREATE TABLE t (n integer); BEGIN IMMEDIATE")
            .unwrap();
        write(&theirs, 0..10);
        let (before, asked) = (folder.log_bytes(), std::time::Instant::now());
        make(&ours).unwrap();
        assert!(asked.elapsed() < BUSY_TIMEOUT);
        assert_eq!(
            folder.log_bytes(),
            before,
            "nobody makes the log longer while another writes"
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
        let (before, log) = (folder.log_bytes(), folder.0.join("tasks.db-wal"));
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
