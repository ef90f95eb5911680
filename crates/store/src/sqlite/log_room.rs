//! Room for the write-ahead log on the disk, before it is needed.
//!
//! A commit that makes its file longer waits for the file system to find room and to note the new length, and one that finds
//! room does not. SQLite writes its log from the front again after each checkpoint, so this is about the commits between an
//! opening of the file and the first checkpoint. Whatever goes wrong here is no reason not to open it.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use rusqlite::Connection;
use rustix::fs::{FallocateFlags, fallocate};

/// About as much as the log grows to between two checkpoints.
const BYTES: u64 = 32 << 20;

/// Makes the log as long as it is going to be. What stands behind its last commit is never taken for one: SQLite reads up to
/// the first frame that does not follow from those before.
pub(super) fn make(connection: &Connection, path: &Path) {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    // The file of a new store's log is made by the first that writes.
    let has_room = std::fs::metadata(&log).is_ok_and(|log| log.len() >= BYTES);
    if has_room {
        return;
    }
    if let Err(error) = lengthen_alone(connection, Path::new(&log)) {
        tracing::debug!(%error, "the write-ahead log grows as it is written");
    }
}

/// While we may write, nobody else makes the log longer.
fn lengthen_alone(connection: &Connection, log: &Path) -> io::Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE").map_err(io::Error::other)?;
    let lengthened = lengthen(log);
    connection.execute_batch("ROLLBACK").map_err(io::Error::other)?;
    lengthened
}

fn lengthen(log: &Path) -> io::Result<()> {
    let log = OpenOptions::new().write(true).open(log)?;
    let length = log.metadata()?.len();
    if length < BYTES {
        fallocate(&log, FallocateFlags::empty(), length, BYTES - length)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::sqlite::connection;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let folder = std::env::temp_dir().join(format!("longhaul-room-{:016x}", crate::random::next_u64()));
            std::fs::create_dir(&folder).unwrap();
            Self(folder)
        }

        fn file(&self) -> PathBuf {
            self.0.join("tasks.db")
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
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn write(connection: &Connection, rows: std::ops::Range<i64>) {
        rows.for_each(|row| drop(connection.execute("INSERT INTO t VALUES (?1)", [row]).unwrap()));
    }

    fn rows(folder: &Folder) -> i64 {
        let connection = connection::writer(&folder.file()).unwrap();
        let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn every_commit_before_and_after_is_there_after_a_crash() {
        let folder = Folder::new();
        let connection = connection::writer(&folder.file()).unwrap();
        connection.execute_batch("CREATE TABLE t (n integer)").unwrap();
        write(&connection, 0..100);
        make(&connection, &folder.file());
        assert_eq!(folder.log_bytes(), BYTES);
        assert_eq!(rows(&folder.as_after_a_crash()), 100);
        write(&connection, 100..300);
        assert_eq!(rows(&folder.as_after_a_crash()), 300);
        // From the front again, over frames of the time before.
        connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
        write(&connection, 300..310);
        assert_eq!(rows(&folder.as_after_a_crash()), 310);
        assert_eq!(folder.log_bytes(), BYTES, "no commit made it longer");
    }

    #[test]
    fn a_new_file_has_room_at_once() {
        let folder = Folder::new();
        let connection = connection::writer(&folder.file()).unwrap();
        make(&connection, &folder.file());
        assert_eq!(folder.log_bytes(), BYTES);
        connection.execute_batch("CREATE TABLE t (n integer)").unwrap();
        assert_eq!(rows(&folder.as_after_a_crash()), 0);
    }

    #[test]
    fn a_file_that_somebody_else_writes_is_opened_all_the_same() {
        let folder = Folder::new();
        let (ours, theirs) = (connection::writer(&folder.file()).unwrap(), connection::writer(&folder.file()).unwrap());
        theirs.execute_batch("CREATE TABLE t (n integer); BEGIN IMMEDIATE").unwrap();
        write(&theirs, 0..10);
        ours.busy_timeout(Duration::ZERO).unwrap();
        let before = folder.log_bytes();
        make(&ours, &folder.file());
        assert_eq!(folder.log_bytes(), before, "nobody makes the log longer while another writes");
        theirs.execute_batch("COMMIT").unwrap();
        make(&ours, &folder.file());
        write(&ours, 10..20);
        assert_eq!((folder.log_bytes(), rows(&folder.as_after_a_crash())), (BYTES, 20));
    }
}
