//! Room for the write-ahead log on the disk, before it is needed.
//!
//! A commit that makes its file longer waits for the file system to find room and to note the new length, and one that finds
//! room does not. SQLite writes its log from the front again after each checkpoint, so this is about the commits between an
//! opening of the file and the first checkpoint. What is refused here is no reason not to open the file.

use std::fs::{File, OpenOptions};
use std::io;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

use super::connection::BUSY_TIMEOUT;
use crate::failure::Failure;

/// About as much as the log grows to between two checkpoints (`wal_autocheckpoint`).
const BYTES: u64 = 32 << 20;
/// The log takes at most this part of what is free: the file itself, and the files of others, need room as well.
const PART_OF_FREE: u64 = 8;

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
    let alone = Transaction::new_unchecked(connection, TransactionBehavior::Immediate).map_err(io::Error::other)?;
    let file = connection.path().ok_or_else(|| io::Error::other("the store has no file"))?;
    let lengthened = lengthen(&OpenOptions::new().write(true).open(format!("{file}-wal"))?);
    alone.rollback().map_err(io::Error::other)?;
    lengthened
}

fn lengthen(log: &File) -> io::Result<()> {
    let (length, disk) = (log.metadata()?.len(), fstatvfs(log)?);
    let wanted = wanted_bytes(length, disk.f_bavail.saturating_mul(disk.f_frsize));
    if wanted == 0 {
        return Ok(());
    }
    // A disk that is full before the end keeps what it has given so far.
    fallocate(log, FallocateFlags::empty(), length, wanted).or_else(|error| {
        log.set_len(length)?;
        Err(error.into())
    })
}

/// How much longer a log of this length is made on a disk with so much free.
const fn wanted_bytes(length: u64, free_bytes: u64) -> u64 {
    let wanted = BYTES.saturating_sub(length);
    if wanted.saturating_mul(PART_OF_FREE) > free_bytes { 0 } else { wanted }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::sqlite::connection;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let folder = std::env::temp_dir().join(format!("longhaul-room-{:016x}", crate::random::next_u64()));
            std::fs::create_dir(&folder).unwrap();
            Self(folder)
        }

        fn open(&self) -> Connection {
            connection::writer(&self.0.join("tasks.db")).unwrap()
        }

        fn log_bytes(&self) -> u64 {
            std::fs::metadata(self.0.join("tasks.db-wal")).unwrap().len()
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
            assert_eq!(connection.execute("INSERT INTO t VALUES (?1)", [row]).unwrap(), 1);
        }
    }

    fn rows(folder: &Folder) -> i64 {
        let connection = folder.open();
        let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn every_commit_before_and_after_is_there_after_a_crash() {
        let folder = Folder::new();
        let connection = folder.open();
        connection.execute_batch("CREATE TABLE t (n integer)").unwrap();
        write(&connection, 0..100);
        make(&connection).unwrap();
        assert_eq!(folder.log_bytes(), BYTES);
        assert_eq!(rows(&folder.as_after_a_crash()), 100);
        write(&connection, 100..300);
        assert_eq!(rows(&folder.as_after_a_crash()), 300);
        // From the front again, over frames of the time before.
        connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
        write(&connection, 300..310);
        assert_eq!(rows(&folder.as_after_a_crash()), 310);
    }

    #[test]
    fn a_new_file_has_room_at_once_also_behind_a_link() {
        let (folder, links) = (Folder::new(), Folder::new());
        std::os::unix::fs::symlink(folder.0.join("tasks.db"), links.0.join("tasks.db")).unwrap();
        let connection = links.open();
        make(&connection).unwrap();
        assert_eq!(folder.log_bytes(), BYTES);
        make(&connection).unwrap();
        assert_eq!(folder.log_bytes(), BYTES, "once");
        connection.execute_batch("CREATE TABLE t (n integer)").unwrap();
        assert_eq!(rows(&folder.as_after_a_crash()), 0);
    }

    #[test]
    fn nobody_waits_for_somebody_else_who_writes() {
        let folder = Folder::new();
        let (ours, theirs) = (folder.open(), folder.open());
        theirs.execute_batch("CREATE TABLE t (n integer); BEGIN IMMEDIATE").unwrap();
        write(&theirs, 0..10);
        let (before, asked) = (folder.log_bytes(), std::time::Instant::now());
        make(&ours).unwrap();
        assert!(asked.elapsed() < BUSY_TIMEOUT);
        assert_eq!(folder.log_bytes(), before, "nobody makes the log longer while another writes");
        theirs.execute_batch("COMMIT").unwrap();
        make(&ours).unwrap();
        write(&ours, 10..20);
        assert_eq!((folder.log_bytes(), rows(&folder.as_after_a_crash())), (BYTES, 20));
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
