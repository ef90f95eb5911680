//! Connections to a database server, kept at hand between operations.
//!
//! sqlx's pool opens them and bounds them. But it asks the server after each use whether the connection still lives, a
//! round trip for every operation. A connection whose operation came to an answer therefore stays here and never goes
//! back; one that lay unused for a while is asked before its next use. All others are closed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_domain::StoreError;
use sqlx::{
    ConnectOptions, Connection, Database, Pool,
    pool::{PoolConnection, PoolOptions},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::Failure;

/// How long an operation waits for a connection. While the server refuses them the pool tries again after longer and
/// longer rests, up to a fifth of this: after an outage nobody sleeps for more than two seconds.
pub(crate) const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// How soon a server that refuses connections is asked again when a store is opened.
const CONNECT_AGAIN: Duration = Duration::from_millis(200);
/// How long a connection may lie unused before it is asked whether it still lives.
const TRUST_IDLE: Duration = Duration::from_secs(1);
/// How long the answer to that is waited for. A connection whose other end is gone never answers, and nobody says so.
const LIFE_WAIT: Duration = Duration::from_secs(2);

/// What a store may take of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) max_connections: u32,
    pub(crate) operation_wait: Duration,
}

/// A pool, and those of its connections that are at hand.
#[derive(Debug)]
pub(crate) struct Connections<DB: Database> {
    pub(crate) pool: Pool<DB>,
    /// One for each connection that may be in use. Whoever has one finds a connection at hand, or the pool has one left.
    places: Arc<Semaphore>,
    /// How long an operation may take, the wait for its connection included.
    pub(crate) operation_wait: Duration,
    idle: Arc<Mutex<Vec<Idle<DB>>>>,
}

#[derive(Debug)]
struct Idle<DB: Database> {
    connection: PoolConnection<DB>,
    since: Instant,
}

impl<DB: Database> Clone for Connections<DB> {
    fn clone(&self) -> Self {
        let (places, idle) = (Arc::clone(&self.places), Arc::clone(&self.idle));
        Self {
            pool: self.pool.clone(),
            places,
            operation_wait: self.operation_wait,
            idle,
        }
    }
}

impl<DB: Database> Connections<DB> {
    pub(crate) fn new(pool: Pool<DB>, operation_wait: Duration) -> Self {
        let most = pool.options().get_max_connections() as usize;
        Self {
            pool,
            places: Arc::new(Semaphore::new(most)),
            operation_wait,
            idle: Arc::default(),
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Idle<DB>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that lives, as far as anybody knows.
    pub(crate) async fn take(&self) -> Result<Taken<DB>, Failure> {
        let away = |why: &str| Failure::from(StoreError::Unavailable(why.to_owned()));
        let place =
            tokio::time::timeout(CONNECT_WAIT, Arc::clone(&self.places).acquire_owned()).await;
        let place = place
            .map_err(|_| away("all connections are in use"))?
            .map_err(|_| away("the store is closed"))?;
        loop {
            let Some(Idle {
                mut connection,
                since,
            }) = self.idle().pop()
            else {
                break;
            };
            if since.elapsed() <= TRUST_IDLE || lives::<DB>(&mut connection).await.is_ok() {
                return Ok(Taken {
                    connection,
                    place,
                    home: self.clone(),
                });
            }
        }
        let mut connection = self.pool.acquire().await?;
        // Whoever gives up in the middle leaves an answer behind that may still come, and on MySQL the next question would
        // take it for its own. Such a connection is never used again.
        connection.close_on_drop();
        Ok(Taken {
            connection,
            place,
            home: self.clone(),
        })
    }

    /// Closes all connections; those in use when their operations have ended.
    pub(crate) async fn close(&self) {
        self.places.close();
        self.idle().clear();
        self.pool.close().await;
    }
}

/// Asks a connection whether it still lives. The pool asks so, too, whenever one comes back to it.
pub(crate) async fn lives<DB: Database>(
    connection: &mut DB::Connection,
) -> Result<bool, sqlx::Error> {
    let asked = tokio::time::timeout(LIFE_WAIT, connection.ping()).await;
    asked
        .unwrap_or(Err(sqlx::Error::PoolTimedOut))
        .map(|()| true)
}

/// A pool of a server that has answered. One that refuses connections is asked again for [`CONNECT_WAIT`]; then the reason is
/// told, of which the pool itself would only say that the time is over.
pub(crate) async fn open_pool<DB: Database>(
    pool: PoolOptions<DB>,
    server: <DB::Connection as Connection>::Options,
) -> Result<Pool<DB>, Failure> {
    let (asked_at, mut is_first) = (tokio::time::Instant::now(), true);
    loop {
        let left = CONNECT_WAIT.saturating_sub(asked_at.elapsed());
        match tokio::time::timeout(left, server.connect()).await {
            Ok(Ok(connection)) => {
                // Whatever becomes of it, the server has answered.
                let _ = connection.close().await;
                return Ok(pool.connect_lazy_with(server));
            }
            Ok(Err(sqlx::Error::Io(error))) if may_be_up_soon(&error) && left > CONNECT_AGAIN => {
                if std::mem::take(&mut is_first) {
                    let (server, wait) = (place(&server), CONNECT_WAIT);
                    tracing::warn!(%error, "{server} cannot be reached; it is asked again for {wait:?}");
                }
                tokio::time::sleep(CONNECT_AGAIN).await;
            }
            Ok(Err(sqlx::Error::Io(error))) => {
                return Err(StoreError::Unavailable(format!(
                    "{} cannot be reached: {error}",
                    place(&server)
                ))
                .into());
            }
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => {
                let silent = format!(
                    "{} has not answered within {CONNECT_WAIT:?}",
                    place(&server)
                );
                return Err(StoreError::Unavailable(silent).into());
            }
        }
    }
}

fn may_be_up_soon(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset
    )
}

/// Where the server is, without anybody's password.
fn place(server: &impl ConnectOptions) -> String {
    let url = server.to_url_lossy();
    let port = url
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    format!(
        "{} at {}{port}",
        url.scheme(),
        url.host_str().unwrap_or("the socket")
    )
}

/// A connection in use. Dropped, it is closed: nobody knows what has become of it.
#[derive(Debug)]
pub(crate) struct Taken<DB: Database> {
    pub(crate) connection: PoolConnection<DB>,
    place: OwnedSemaphorePermit,
    home: Connections<DB>,
}

impl<DB: Database> Taken<DB> {
    /// The operation has come to this answer. Unless that casts a doubt on the connection, it stays at hand.
    pub(crate) fn answered<T>(self, answer: Result<T, Failure>) -> Result<T, Failure> {
        let Self {
            connection,
            place,
            home,
        } = self;
        let is_in_doubt = matches!(
            answer,
            Err(Failure::Store(
                StoreError::Unavailable(_) | StoreError::Internal(_)
            ))
        );
        if !is_in_doubt && !home.places.is_closed() {
            home.idle().push(Idle {
                connection,
                since: Instant::now(),
            });
        }
        drop(place);
        answer
    }
}

#[cfg(all(test, feature = "postgres", feature = "mysql"))]
mod tests {
    use sqlx::{mysql::MySqlPoolOptions, postgres::PgPoolOptions};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_not_there_is_asked_again_and_told_of_by_its_place() {
        let port = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let started = tokio::time::Instant::now();
        let postgres = format!("postgres://ann:secret@127.0.0.1:{port}/db")
            .parse()
            .unwrap();
        let mysql = format!("mysql://ann:secret@127.0.0.1:{port}/db")
            .parse()
            .unwrap();
        let failures = [
            open_pool(PgPoolOptions::new(), postgres)
                .await
                .map(drop)
                .unwrap_err(),
            open_pool(MySqlPoolOptions::new(), mysql)
                .await
                .map(drop)
                .unwrap_err(),
        ];
        assert!(started.elapsed() > CONNECT_WAIT, "it may be on its way up");
        for failure in failures {
            let Failure::Store(StoreError::Unavailable(told)) = failure else {
                panic!("{failure:?}")
            };
            assert!(
                told.contains(&format!(
                    "127.0.0.1:{port} cannot be reached: Connection refused"
                )),
                "{told}"
            );
            assert!(!told.contains("secret"), "{told}");
        }
    }
}
