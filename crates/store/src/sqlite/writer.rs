//! The one thread that writes the file, and the commits that its users share.
//!
//! An operation comes to the thread whole and runs there in one go; a caller that goes away changes nothing about it.
//! Whatever came while the last commit was under way shares the next one, each in a savepoint of its own, and nobody
//! hears of success before that commit. A lone operation is committed at once.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{
    Arc,
    mpsc::{self, Receiver, Sender},
};
use std::time::{Duration, Instant};

use longhaul_domain::StoreError;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{
    connection, log_room,
    session::{SqliteSession, at_once},
};
use crate::{
    failure::Failure,
    session::{Operation, Shared},
};

/// Operations in one commit.
const GROUP: usize = 64;
/// How long a group may grow: the first of it waits this much longer for its answer at most.
const GROUP_AGE: Duration = Duration::from_millis(10);

/// The way to the thread. It ends when it is told to, or when the last of these is gone.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    messages: Sender<Message>,
}

enum Message {
    Job(Box<dyn Job>),
    Close(oneshot::Sender<()>),
}

/// An operation with somebody who waits for it.
trait Job: Send {
    /// Does the work in the open transaction; whether it succeeded.
    fn run(&mut self, connection: &mut Connection) -> bool;
    /// What it did is committed, or why it is not.
    fn answer(self: Box<Self>, committed: Result<(), Failure>);
}

struct Asked<O: Operation> {
    operation: Arc<O>,
    shared: Arc<Shared>,
    ran: Option<Result<O::Output, Failure>>,
    answer: oneshot::Sender<Result<O::Output, Failure>>,
}

impl<O: Operation> Job for Asked<O> {
    fn run(&mut self, connection: &mut Connection) -> bool {
        let ran = at_once(
            self.operation
                .run(&mut SqliteSession::new(connection, &self.shared)),
        );
        self.ran.insert(ran).is_ok()
    }

    fn answer(self: Box<Self>, committed: Result<(), Failure>) {
        let ran = self.ran.unwrap_or_else(|| {
            Err(Failure::internal(
                "an operation that did not run was committed",
            ))
        });
        // A caller that went away does not need its answer.
        let _ = self.answer.send(committed.and(ran));
    }
}

impl Writer {
    /// `has_room` asks for a log that commits find room in: whoever only stands beside another process needs none.
    pub(super) fn start(path: &Path, has_room: bool) -> Result<Self, Failure> {
        let (messages, inbox) = mpsc::channel();
        let mut thread = Thread {
            path: path.to_owned(),
            has_room,
            connection: None,
            inbox,
        };
        thread.connection = Some(thread.open()?);
        let named = std::thread::Builder::new().name("longhaul-sqlite".to_owned());
        named
            .spawn(|| thread.work())
            .map_err(|error| StoreError::Unavailable(format!("no thread: {error}")))?;
        Ok(Self { messages })
    }

    /// Runs the operation, alone or with others in one transaction, and answers when that is committed.
    pub(super) async fn transact<O: Operation>(
        &self,
        shared: &Arc<Shared>,
        operation: &Arc<O>,
    ) -> Result<O::Output, Failure> {
        let (answer, answered) = oneshot::channel();
        let job = Asked {
            operation: Arc::clone(operation),
            shared: Arc::clone(shared),
            ran: None,
            answer,
        };
        let closed = || Failure::from(StoreError::Unavailable("the store is closed".to_owned()));
        self.messages
            .send(Message::Job(Box::new(job)))
            .map_err(|_| closed())?;
        answered.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Lets whoever is at work finish, and closes the connection for good.
    pub(super) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.messages.send(Message::Close(done)).is_ok() {
            // Gone without a word is closed as well.
            let _ = closed.await;
        }
    }
}

struct Thread {
    path: PathBuf,
    has_room: bool,
    /// Absent after a failure that left it in doubt; the next group opens it anew.
    connection: Option<Connection>,
    inbox: Receiver<Message>,
}

impl Thread {
    fn open(&self) -> Result<Connection, Failure> {
        let connection = connection::writer(&self.path)?;
        if self.has_room {
            log_room::make(&connection)?;
        }
        Ok(connection)
    }

    fn work(mut self) {
        while let Ok(message) = self.inbox.recv() {
            let closing = match message {
                Message::Job(first) => self.commit_group(first),
                Message::Close(done) => Some(done),
            };
            if let Some(done) = closing {
                drop(self.connection.take());
                // Whoever asked may have gone; the file is closed all the same.
                let _ = done.send(());
                return;
            }
        }
    }

    /// Runs the job and what has come meanwhile in one transaction. Answers with who wants the thread to end.
    fn commit_group(&mut self, first: Box<dyn Job>) -> Option<oneshot::Sender<()>> {
        let (mut group, began, mut closing) = (Group::default(), Instant::now(), None);
        let connection = self.connection.take().map_or_else(|| self.open(), Ok);
        let mut connection = match connection {
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
            Ok(()) => group.commit(&connection),
            Err(Halt::InDoubt(failure)) => Err(failure),
            // Another program that holds the lock is no reason to doubt the connection.
            Err(Halt::Locked(failure)) => {
                closing = self.refuse_waiting(&failure);
                Ok(())
            }
        };
        match &committed {
            Ok(()) => self.connection = Some(connection),
            // Closed, it rolls back what may be left.
            Err(failure) => tracing::warn!(?failure, "the writer is in doubt and is opened anew"),
        }
        for member in group.members {
            member.answer(committed.clone());
        }
        closing
    }

    /// Answers everybody who waits: to wait for the lock once more for each of them, one after the other, would be without
    /// end. Answers with who wants the thread to end.
    fn refuse_waiting(&self, failure: &Failure) -> Option<oneshot::Sender<()>> {
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Job(job) => job.answer(Err(failure.clone())),
                Message::Close(done) => return Some(done),
            }
        }
        None
    }
}

/// Why a group takes nobody else in.
enum Halt {
    /// Somebody else has the file's write lock; nothing was begun.
    Locked(Failure),
    /// The transaction is not what it was.
    InDoubt(Failure),
}

/// The jobs of one transaction, which is open while there are any.
#[derive(Default)]
struct Group {
    members: Vec<Box<dyn Job>>,
}

impl Group {
    /// Runs the job. A failure of its own is the job's to tell; the answer here is whether the group can go on.
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
        // Even a refusal waits for the commit when it is not alone: it may rest on what the others have not committed.
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
                // SQLite rolls back by itself when the disk is full; the job's own failure says why.
                job.answer(if is_good {
                    Err(Failure::Again(error.to_string()))
                } else {
                    Ok(())
                });
                return Err(Halt::InDoubt(Failure::Again(format!(
                    "the shared transaction was given up: {error}"
                ))));
            }
        }
        Ok(())
    }

    /// A transaction for the first job, a savepoint in it for the others.
    fn begin(&self, connection: &Connection) -> Result<(), Halt> {
        if !self.members.is_empty() {
            return connection
                .execute_batch("SAVEPOINT operation")
                .map_err(|error| Halt::InDoubt(error.into()));
        }
        connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| match Failure::from(error) {
            Failure::Again(why) => Halt::Locked(Failure::Again(format!(
                "another connection is writing the file, perhaps a transaction that this program has open: {why}"
            ))),
            failure @ Failure::Store(_) => Halt::InDoubt(failure),
        })
    }

    fn commit(&self, connection: &Connection) -> Result<(), Failure> {
        match self.members.is_empty() {
            true => Ok(()),
            false => Ok(connection.execute_batch("COMMIT")?),
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .unwrap_or("of unknown cause");
    Failure::internal(format!("a panic in the store: {message}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rusqlite::ffi::{SQLITE_BUSY, SQLITE_BUSY_SNAPSHOT};

    use super::*;

    /// What became of a write that another program tries between our read and our write, and of ours: the codes of SQLite.
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

    /// An operation with another program at its heels.
    struct Raced {
        theirs: Connection,
        told: Sender<Race>,
    }

    impl Job for Raced {
        fn run(&mut self, connection: &mut Connection) -> bool {
            self.told.send(race(connection, &self.theirs)).is_ok()
        }

        fn answer(self: Box<Self>, committed: Result<(), Failure>) {
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

        /// Our connection, and that of a program that does not wait for the lock.
        fn open_twice(&self) -> (Connection, Connection) {
            let open = || connection::writer(&self.0.join("tasks.db")).unwrap();
            let (ours, theirs) = (open(), open());
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
    fn nobody_comes_between_what_an_operation_reads_and_what_it_writes() {
        let folder = Folder::new();
        let (mut ours, theirs) = folder.open_twice();
        let (told, races) = mpsc::channel();
        let mut group = Group::default();
        assert!(
            group
                .run(&mut ours, Box::new(Raced { theirs, told }))
                .is_ok()
        );
        group.commit(&ours).unwrap();
        assert_eq!(
            races.recv().unwrap(),
            Race {
                theirs: Err(SQLITE_BUSY),
                ours: Ok(())
            }
        );
    }

    /// Passes on why it did not run.
    struct Refused(Sender<Failure>);

    impl Job for Refused {
        fn run(&mut self, _connection: &mut Connection) -> bool {
            panic!("nobody else writes")
        }

        fn answer(self: Box<Self>, committed: Result<(), Failure>) {
            self.0.send(committed.unwrap_err()).unwrap();
        }
    }

    #[test]
    fn all_who_wait_for_another_connection_wait_once_together_and_hear_of_it() {
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
        let mut thread = Thread {
            path: folder.0.clone(),
            has_room: false,
            connection: Some(ours),
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
        let refusals: Vec<Failure> = answers.iter().collect();
        assert_eq!(refusals.len(), 3);
        for refusal in refusals {
            let Failure::Again(why) = refusal else {
                panic!("it is tried again")
            };
            assert!(
                why.starts_with("another connection is writing the file"),
                "{why}"
            );
        }
        assert_eq!(WAITS.load(Ordering::Relaxed), 1);
        assert!(thread.connection.is_some(), "the connection is good");
    }

    /// The bug that the first test is there for, planted: such a failure comes at once, however long the busy timeout is.
    #[test]
    fn the_same_work_in_a_deferred_transaction_cannot_write_once_somebody_came_between() {
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
