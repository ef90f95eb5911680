//! The thread that writes the file, and its group commits.
//!
//! The thread runs each operation from start to end, even if its caller has gone. Operations that
//! arrive during a commit share the next one, each in its own savepoint. Their callers get their
//! answers after that commit. A lone operation commits at once.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{
    Arc, Weak,
    mpsc::{self, Receiver, RecvTimeoutError, Sender},
};
use std::time::{Duration, Instant};

use longhaul_domain::StoreError;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{
    connection,
    file::{Identity, Lock, StoreFile},
    log_room,
    session::{SqliteSession, at_once},
};
use crate::{
    session::{Operation, Shared},
    sql_error::SqlError,
    system_clock::LeadLog,
};

/// The most operations in one commit.
const GROUP: usize = 64;
/// How often the thread looks after its files and its clock.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a group may grow. This bounds the extra wait of its first operation.
const GROUP_AGE: Duration = Duration::from_millis(10);

/// The handle of the thread. The thread ends on [`Message::Close`] or when the last handle drops.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    messages: Sender<Message>,
}

enum Message {
    Job(Box<dyn Job>),
    Close(oneshot::Sender<()>),
}

/// An operation and its waiting caller.
trait Job: Send {
    /// Runs in the open transaction. Returns whether it succeeded.
    fn run(&mut self, connection: &mut Connection) -> bool;
    /// Sends the answer, once the work is committed or has failed.
    fn answer(self: Box<Self>, committed: Result<(), SqlError>);
}

struct Asked<O: Operation> {
    operation: Arc<O>,
    shared: Arc<Shared>,
    ran: Option<Result<O::Output, SqlError>>,
    answer: oneshot::Sender<Result<O::Output, SqlError>>,
}

impl<O: Operation> Job for Asked<O> {
    fn run(&mut self, connection: &mut Connection) -> bool {
        let ran = at_once(
            self.operation
                .run(&mut SqliteSession::new(connection, &self.shared)),
        );
        self.ran.insert(ran).is_ok()
    }

    fn answer(self: Box<Self>, committed: Result<(), SqlError>) {
        let ran = self.ran.unwrap_or_else(|| {
            Err(SqlError::internal(
                "an operation that did not run was committed",
            ))
        });
        // The caller may have gone.
        let _ = self.answer.send(committed.and(ran));
    }
}

impl Writer {
    /// With the lock of the file, its log is preallocated. A store opened beside another process
    /// does not need that.
    pub(super) fn start(
        file: &Arc<StoreFile>,
        lock: Option<&Arc<Lock>>,
        shared: &Shared,
    ) -> Result<Self, SqlError> {
        let (messages, inbox) = mpsc::channel();
        let mut thread = Thread {
            file: Arc::clone(file),
            lock: lock.map(Arc::downgrade),
            connection: None,
            log: None,
            looked_at: Instant::now(),
            lead: LeadLog::of(shared.local_clock()),
            inbox,
        };

        thread.connection = Some(thread.open()?);
        // rusqlite blocks, so the writer has a thread outside the async runtime.
        let named = std::thread::Builder::new().name("longhaul-sqlite".to_owned());
        named
            .spawn(|| thread.work())
            .map_err(|error| StoreError::Unavailable(format!("no thread: {error}")))?;

        Ok(Self { messages })
    }

    /// Runs the operation, alone or in a shared transaction, and returns after the commit.
    pub(super) async fn transact<O: Operation>(
        &self,
        shared: &Arc<Shared>,
        operation: &Arc<O>,
    ) -> Result<O::Output, SqlError> {
        let (answer, answered) = oneshot::channel();
        let job = Asked {
            operation: Arc::clone(operation),
            shared: Arc::clone(shared),
            ran: None,
            answer,
        };

        let closed = || SqlError::from(StoreError::Unavailable("the store is closed".to_owned()));
        self.messages
            .send(Message::Job(Box::new(job)))
            .map_err(|_| closed())?;

        answered.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Finishes the current group and closes the connection.
    pub(super) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.messages.send(Message::Close(done)).is_ok() {
            // An error means that the thread has ended, which also closes the connection.
            let _ = closed.await;
        }
    }
}

struct Thread {
    file: Arc<StoreFile>,
    /// The lock of the file, unless the store was opened beside another process. The store holds
    /// it; the thread may end later.
    lock: Option<Weak<Lock>>,
    /// `None` after a failure that left its state unknown; the next group opens a new one.
    connection: Option<Connection>,
    /// The write-ahead log of the connection, once it has committed.
    log: Option<Identity>,
    /// When the thread last looked after its files and its clock.
    looked_at: Instant,
    lead: LeadLog,
    inbox: Receiver<Message>,
}

impl Thread {
    fn open(&mut self) -> Result<Connection, SqlError> {
        self.file.check()?;
        let connection = connection::writer(self.file.path())?;
        // Again, now that the connection is open: it may be to another file.
        self.file.check()?;

        if self.lock.is_some() {
            log_room::make(&connection)?;
        }
        self.log = None;
        Ok(connection)
    }

    fn work(mut self) {
        loop {
            let closing = match self.inbox.recv_timeout(LOOK_EVERY) {
                Ok(Message::Job(first)) => self.commit_group(first),
                Ok(Message::Close(done)) => Some(done),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if self.looked_at.elapsed() >= LOOK_EVERY {
                self.look();
            }
            if let Some(done) = closing {
                drop(self.connection.take());
                // The caller may have gone.
                let _ = done.send(());
                return;
            }
        }
    }

    /// Looks whether the files are still those that were opened, and whether the clock is ahead.
    fn look(&mut self) {
        self.looked_at = Instant::now();
        self.lead.look();
        // A loss is logged, and refuses the next operations.
        let _ = self.file.check();
        // The log is there for sure once the connection has committed.
        if self.log.is_some()
            && let Some(connection) = self.connection.take()
        {
            let _ = self.check_files(&connection);
            self.connection = Some(connection);
        }

        if let Some(lock) = self.lock.as_ref().and_then(Weak::upgrade) {
            lock.keep(&self.file);
        }
    }

    /// Commits the group. A commit to a file that is gone does not count.
    fn commit(&mut self, group: &Group, connection: &Connection) -> Result<(), SqlError> {
        if group.members.is_empty() {
            return Ok(());
        }

        connection.execute_batch("COMMIT")?;
        Ok(self.check_files(connection)?)
    }

    /// Refuses once the file or the log of the connection is gone.
    fn check_files(&mut self, connection: &Connection) -> Result<(), StoreError> {
        self.file.check()?;
        let checked = self.file.check_log(&mut self.log);
        // Of a replaced log nothing is saved: another process may have committed to the new one.
        if checked.is_err() && !self.file.log().exists() {
            // The log is still open here. This saves its commits into the database.
            let saved = connection.query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(()));
            tracing::warn!(
                ?saved,
                "the commits of the deleted log were written to the database"
            );
        }

        checked
    }

    /// Runs the job and those already queued in one transaction. Returns the sender of a close
    /// request.
    fn commit_group(&mut self, first: Box<dyn Job>) -> Option<oneshot::Sender<()>> {
        let mut group = Group::default();
        let began = Instant::now();
        let mut closing = None;

        let mut connection = match self.ready() {
            Ok(connection) => connection,
            Err(failure) => {
                first.answer(Err(failure));
                return None;
            }
        };

        let mut ran = group.run(&mut connection, first);
        while ran.is_ok() && group.members.len() < GROUP && began.elapsed() < GROUP_AGE {
            match self.inbox.try_recv() {
                Ok(Message::Job(next)) => ran = group.run(&mut connection, next),
                Ok(Message::Close(done)) => {
                    closing = Some(done);
                    break;
                }
                Err(_) => break,
            }
        }

        let committed = match ran {
            Ok(()) => self.commit(&group, &connection),
            Err(Halt::InDoubt(failure)) => Err(failure),
            // Another program holds the lock; the connection is still good.
            Err(Halt::Locked(failure)) => {
                closing = self.refuse_waiting(&failure);
                Ok(())
            }
        };
        match &committed {
            Ok(()) => self.connection = Some(connection),
            Err(_) if self.file.check_known().is_err() => {}
            // Dropping the connection rolls back an open transaction.
            Err(failure) => tracing::warn!(?failure, "the writer is in doubt and is opened anew"),
        }

        // Answer last: the callers may act on the commit.
        for member in group.members {
            member.answer(committed.clone());
        }

        closing
    }

    /// The connection, opened anew if the last one was given up.
    fn ready(&mut self) -> Result<Connection, SqlError> {
        self.file.check_known()?;
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => self.open(),
        }
    }

    /// Refuses all queued jobs: each would wait for the lock again, one after the other. Returns
    /// the sender of a close request.
    fn refuse_waiting(&self, failure: &SqlError) -> Option<oneshot::Sender<()>> {
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Job(job) => job.answer(Err(failure.clone())),
                Message::Close(done) => return Some(done),
            }
        }
        None
    }
}

/// Why a group takes no more jobs.
enum Halt {
    /// Another connection holds the file's write lock; no transaction began.
    Locked(SqlError),
    /// The state of the transaction is unknown.
    InDoubt(SqlError),
}

/// The jobs of one transaction. It is open while the group has members.
#[derive(Default)]
struct Group {
    members: Vec<Box<dyn Job>>,
}

impl Group {
    /// Runs the job. The job reports its own failure; an error here ends the group.
    fn run(&mut self, connection: &mut Connection, mut job: Box<dyn Job>) -> Result<(), Halt> {
        let is_first = self.members.is_empty();
        if let Err(halt) = self.begin(connection) {
            let (Halt::Locked(failure) | Halt::InDoubt(failure)) = &halt;
            job.answer(Err(failure.clone()));
            return Err(halt);
        }

        let ran = catch_unwind(AssertUnwindSafe(|| job.run(connection)));
        let is_good = match ran {
            Ok(is_good) => is_good,
            Err(panic) => {
                let failure = panicked(&*panic);
                job.answer(Err(failure.clone()));
                return Err(Halt::InDoubt(failure));
            }
        };

        // In a group even a refusal waits for the commit: it may depend on uncommitted work of the
        // others.
        let ended = match (is_first, is_good) {
            (true, true) => Ok(()),
            (true, false) => connection.execute_batch("ROLLBACK"),
            (false, true) => connection.execute_batch("RELEASE operation"),
            (false, false) => connection.execute_batch("ROLLBACK TO operation; RELEASE operation"),
        };

        match ended {
            Ok(()) if is_first && !is_good => job.answer(Ok(())),
            Ok(()) => self.members.push(job),
            Err(error) => {
                // SQLite itself rolls back when the disk is full; the job's failure names the
                // cause.
                job.answer(if is_good {
                    Err(SqlError::LostRace(error.to_string()))
                } else {
                    Ok(())
                });
                return Err(Halt::InDoubt(SqlError::LostRace(format!(
                    "the shared transaction was given up: {error}"
                ))));
            }
        }

        Ok(())
    }

    /// Begins a transaction for the first job and a savepoint for each later one.
    fn begin(&self, connection: &Connection) -> Result<(), Halt> {
        if !self.members.is_empty() {
            return connection
                .execute_batch("SAVEPOINT operation")
                .map_err(|error| Halt::InDoubt(error.into()));
        }

        connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| match SqlError::from(error) {
            SqlError::LostRace(why) => Halt::Locked(SqlError::LostRace(format!(
                "the file is locked by another process, or by a transaction that this program has \
                 open: {why}"
            ))),
            failure @ SqlError::Store(_) => Halt::InDoubt(failure),
        })
    }
}

fn panicked(panic: &(dyn Any + Send)) -> SqlError {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .unwrap_or("of unknown cause");
    SqlError::internal(format!("a panic in the store: {message}"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rusqlite::ffi::{SQLITE_BUSY, SQLITE_BUSY_SNAPSHOT};

    use longhaul_domain::Clock;

    use super::*;
    use crate::{SystemClock, sqlite::file};

    /// The results of another program's write between our read and our write, and of our write, as
    /// SQLite's codes.
    #[derive(Debug, PartialEq, Eq)]
    struct Race {
        theirs: Result<(), i32>,
        ours: Result<(), i32>,
    }

    fn race(ours: &Connection, theirs: &Connection) -> Race {
        let write = |connection: &Connection| {
            let written = connection.execute_batch("UPDATE counter SET n = n + 1");
            written.map_err(|error| error.sqlite_error().unwrap().extended_code)
        };
        ours.query_row("SELECT n FROM counter", [], |row| row.get::<_, i64>(0))
            .unwrap();

        Race {
            theirs: write(theirs),
            ours: write(ours),
        }
    }

    /// An operation that races another program.
    struct Raced {
        theirs: Connection,
        events: Sender<Race>,
    }

    impl Job for Raced {
        fn run(&mut self, connection: &mut Connection) -> bool {
            self.events.send(race(connection, &self.theirs)).is_ok()
        }

        fn answer(self: Box<Self>, committed: Result<(), SqlError>) {
            committed.unwrap();
        }
    }

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let folder = std::env::temp_dir().join(format!(
                "longhaul-writer-{:016x}",
                crate::random::next_u64()
            ));
            std::fs::create_dir(&folder).unwrap();
            Self(folder)
        }

        /// Our connection, and one of another program that does not wait for the lock.
        fn open_twice(&self) -> (Connection, Connection) {
            let path = self.0.join("tasks.db");
            file::make_if_missing(&path).unwrap();
            let open = || connection::writer(&path).unwrap();
            let ours = open();
            let theirs = open();
            ours.execute_batch("CREATE TABLE counter (n integer); INSERT INTO counter VALUES (0)")
                .unwrap();
            theirs.busy_timeout(Duration::ZERO).unwrap();
            (ours, theirs)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn no_write_comes_between_the_reads_and_writes_of_an_operation() {
        let folder = Folder::new();
        let (mut ours, theirs) = folder.open_twice();
        let (events, races) = mpsc::channel();
        let mut group = Group::default();
        assert!(
            group
                .run(&mut ours, Box::new(Raced { theirs, events }))
                .is_ok()
        );

        ours.execute_batch("COMMIT").unwrap();
        assert_eq!(
            races.recv().unwrap(),
            Race {
                theirs: Err(SQLITE_BUSY),
                ours: Ok(())
            }
        );
    }

    /// Reports why it did not run.
    struct Refused(Sender<SqlError>);

    impl Job for Refused {
        fn run(&mut self, _connection: &mut Connection) -> bool {
            panic!("no other connection writes")
        }

        fn answer(self: Box<Self>, committed: Result<(), SqlError>) {
            self.0.send(committed.unwrap_err()).unwrap();
        }
    }

    #[test]
    fn operations_that_wait_for_another_connection_wait_once_together() {
        static WAITS: AtomicUsize = AtomicUsize::new(0);
        let folder = Folder::new();
        let (ours, theirs) = folder.open_twice();
        theirs.execute_batch("BEGIN IMMEDIATE").unwrap();
        let give_up = |_| {
            WAITS.fetch_add(1, Ordering::Relaxed);
            false
        };

        ours.busy_handler(Some(give_up)).unwrap();
        let (messages, inbox) = mpsc::channel();
        let file = StoreFile::find_or_make(&folder.0.join("tasks.db")).unwrap();
        let mut thread = Thread {
            file: Arc::new(file),
            lock: None,
            connection: Some(ours),
            log: None,
            looked_at: Instant::now(),
            lead: LeadLog::of(&(Arc::new(SystemClock::default()) as Arc<dyn Clock>)),
            inbox,
        };

        let (told, answers) = mpsc::channel();
        let (done, _closed) = oneshot::channel();
        for _ in 0..2 {
            messages
                .send(Message::Job(Box::new(Refused(told.clone()))))
                .unwrap();
        }

        messages.send(Message::Close(done)).unwrap();
        assert!(
            thread.commit_group(Box::new(Refused(told))).is_some(),
            "it is still told to end"
        );
        let refusals: Vec<SqlError> = answers.iter().collect();

        assert_eq!(refusals.len(), 3);
        for refusal in refusals {
            let SqlError::LostRace(why) = refusal else {
                panic!("it is tried again")
            };
            assert!(
                why.starts_with("the file is locked by another process"),
                "{why}"
            );
        }

        assert_eq!(WAITS.load(Ordering::Relaxed), 1);
        assert!(thread.connection.is_some(), "the connection is good");
    }

    /// Plants the bug that the first test guards against. The failure comes at once, whatever the
    /// busy timeout is.
    #[test]
    fn a_deferred_transaction_cannot_write_after_another_write() {
        let folder = Folder::new();
        let (ours, theirs) = folder.open_twice();
        ours.execute_batch("BEGIN DEFERRED").unwrap();
        assert_eq!(
            race(&ours, &theirs),
            Race {
                theirs: Ok(()),
                ours: Err(SQLITE_BUSY_SNAPSHOT)
            }
        );
    }
}
