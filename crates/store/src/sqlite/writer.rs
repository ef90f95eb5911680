//! The one connection that writes the file, and the commits that its users share.
//!
//! Operations take turns. One that finds others waiting behind it leaves the transaction open for the next, and
//! the last of them commits for all; nobody hears of success before that commit. A lone operation commits at once.
//!
//! Whoever holds the seat commits, leaves the transaction to somebody who surely comes, or drops the connection,
//! which rolls back: then everybody in the group runs again. A commit that has begun is never given up.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use std::time::{Duration, Instant};

use longhaul_domain::StoreError;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, Executor as _, SqliteConnection};
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

use super::session::SqliteSession;
use crate::{
    failure::Failure,
    session::{Operation, Shared},
};

/// Operations in one commit.
const GROUP: usize = 64;
/// How long a group may grow: the first of it waits this much longer for its answer at most.
const GROUP_AGE: Duration = Duration::from_millis(10);

/// The way to the connection that writes.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    options: Arc<SqliteConnectOptions>,
    seat: Arc<Mutex<Seat>>,
    /// Operations that wait for the seat; each of them surely comes, or settles what was left for it.
    waiting: Arc<AtomicUsize>,
    closed: Arc<AtomicBool>,
}

/// What the operation whose turn it is has in hand.
#[derive(Debug)]
struct Seat {
    /// Absent after a failure that left it in doubt; the next user opens it anew.
    connection: Option<SqliteConnection>,
    /// Who waits for the commit of the open transaction; nobody means that none is open.
    group: Vec<Member>,
    began: Instant,
}

type Member = oneshot::Sender<Result<(), Failure>>;

impl Writer {
    pub(super) async fn open(options: SqliteConnectOptions) -> Result<Self, sqlx::Error> {
        let connection = Some(SqliteConnection::connect_with(&options).await?);
        let seat = Seat { connection, group: Vec::new(), began: Instant::now() };
        Ok(Self {
            options: Arc::new(options),
            seat: Arc::new(Mutex::new(seat)),
            waiting: Arc::default(),
            closed: Arc::default(),
        })
    }

    /// A connection of the caller's own.
    pub(super) async fn connect(&self) -> Result<SqliteConnection, sqlx::Error> {
        SqliteConnection::connect_with(&self.options).await
    }

    /// Runs the operation, alone or with others in one transaction, and answers when that is committed.
    pub(super) async fn transact<O: Operation>(&self, shared: &Shared, operation: &O) -> Result<O::Output, Failure> {
        let mut seat = self.take_seat().await;
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Unavailable("the store is closed".to_owned()).into());
        }
        // Taken out of the seat: a caller that is dropped on the way rolls back by closing the connection.
        let mut group = std::mem::take(&mut seat.group);
        let mut connection = match seat.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let is_first = group.is_empty();
        if is_first {
            seat.began = Instant::now();
        }
        connection.execute(if is_first { "BEGIN IMMEDIATE" } else { "SAVEPOINT operation" }).await?;
        let ran = operation.run(&mut SqliteSession::new(&mut connection, shared)).await;
        let ended = match (is_first, ran.is_ok()) {
            (true, true) => Ok(()),
            (true, false) => connection.execute("ROLLBACK").await.map(drop),
            (false, true) => connection.execute("RELEASE operation").await.map(drop),
            (false, false) => connection.execute("ROLLBACK TO operation; RELEASE operation").await.map(drop),
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "the writer is in doubt and is opened anew");
            // SQLite rolls back by itself when the disk is full; the first failure says why.
            return Err(ran.err().unwrap_or_else(|| error.into()));
        }
        if is_first && ran.is_err() {
            seat.connection = Some(connection);
            return ran;
        }
        // Even a refusal waits: it may rest on what the group has not committed yet.
        let (member, told) = oneshot::channel();
        group.push(member);
        seat.connection = Some(connection);
        seat.group = group;
        if self.waiting.load(Ordering::Acquire) == 0 || seat.is_full() {
            commit(seat);
        } else {
            drop(seat);
        }
        told.await.unwrap_or_else(|_| Err(Failure::Again("the shared transaction was given up".to_owned())))?;
        ran
    }

    /// Lets whoever is at work finish, and closes the connection for good.
    pub(super) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // What waits now is told that the store is closed, and commits nothing but what was left to it.
        let connection = loop {
            let mut seat = Arc::clone(&self.seat).lock_owned().await;
            match seat.group.is_empty() {
                true => break seat.connection.take(),
                false => commit(seat),
            }
        };
        if let Some(connection) = connection
            && let Err(error) = connection.close().await
        {
            tracing::debug!(%error, "the writer could not be closed in peace");
        }
    }

    async fn take_seat(&self) -> OwnedMutexGuard<Seat> {
        let mut place = Place::new(self);
        let seat = Arc::clone(&self.seat).lock_owned().await;
        place.has_come = true;
        seat
    }
}

impl Seat {
    fn is_full(&self) -> bool {
        self.group.len() >= GROUP || self.began.elapsed() >= GROUP_AGE
    }
}

/// Commits for the whole group. It runs by itself, so that no caller that goes away can leave it in doubt.
fn commit(mut seat: OwnedMutexGuard<Seat>) {
    tokio::spawn(async move {
        let group = std::mem::take(&mut seat.group);
        let Some(mut connection) = seat.connection.take() else { return };
        let committed = connection.execute("COMMIT").await;
        if committed.is_ok() {
            seat.connection = Some(connection);
        }
        drop(seat);
        let told = committed.map(drop).map_err(Failure::from);
        for member in group {
            // A caller that went away does not need its answer.
            let _ = member.send(told.clone());
        }
    });
}

/// A place among those who wait for the seat.
struct Place<'a> {
    writer: &'a Writer,
    has_come: bool,
}

impl<'a> Place<'a> {
    fn new(writer: &'a Writer) -> Self {
        writer.waiting.fetch_add(1, Ordering::AcqRel);
        Self { writer, has_come: false }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.writer.waiting.fetch_sub(1, Ordering::AcqRel);
        if self.has_come {
            return;
        }
        // Somebody may have left a transaction to this caller, who will not come.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let Writer { seat, waiting, .. } = self.writer.clone();
            runtime.spawn(async move {
                let seat = seat.lock_owned().await;
                if !seat.group.is_empty() && waiting.load(Ordering::Acquire) == 0 {
                    commit(seat);
                }
            });
        }
    }
}
