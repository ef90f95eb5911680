//! Connections to a database server, kept open between operations.
//!
//! sqlx's pool opens them and limits their number. But it pings the server after each use, a round
//! trip per operation. So a connection whose operation got an answer stays in this module and never
//! returns to the pool. After some idle time it is pinged before its next use. All others are
//! closed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_domain::StoreError;
use sqlx::{
    ConnectOptions, Connection, Database, Pool,
    pool::{PoolConnection, PoolOptions},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sql_error::SqlError;

/// How long an operation waits for a connection. While the server refuses connections, the pool
/// retries with growing pauses of up to a fifth of this: two seconds.
pub(crate) const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// The pause between connection attempts while a store opens.
const CONNECT_AGAIN: Duration = Duration::from_millis(200);
/// How long a connection may be idle before it is pinged.
const TRUST_IDLE: Duration = Duration::from_secs(1);
/// How long a ping may take. A connection whose other end is gone never answers and reports no
/// error.
const LIFE_WAIT: Duration = Duration::from_secs(2);

/// The limits of a store's use of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) max_connections: u32,
    pub(crate) operation_wait: Duration,
}

/// A pool and its idle connections.
#[derive(Debug)]
pub(crate) struct Connections<DB: Database> {
    pub(crate) pool: Pool<DB>,
    /// One permit per connection. With a permit, a connection is idle here or available from the
    /// pool.
    slots: Arc<Semaphore>,
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
        let slots = Arc::clone(&self.slots);
        let idle = Arc::clone(&self.idle);
        Self {
            pool: self.pool.clone(),
            slots,
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
            slots: Arc::new(Semaphore::new(most)),
            operation_wait,
            idle: Arc::default(),
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Idle<DB>>> {
        // A panic cannot leave the list half changed, so a poisoned lock is still good.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection. It was used or pinged a moment ago, or it is new.
    pub(crate) async fn take(&self) -> Result<Taken<DB>, SqlError> {
        let unavailable = |why: &str| SqlError::from(StoreError::Unavailable(why.to_owned()));
        let place =
            tokio::time::timeout(CONNECT_WAIT, Arc::clone(&self.slots).acquire_owned()).await;
        let place = place
            .map_err(|_| unavailable("all connections are in use"))?
            .map_err(|_| unavailable("the store is closed"))?;

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
        // A cancelled operation may leave an unread answer, which on MySQL the next query would
        // read as its own. So a dropped connection is closed, not reused.
        connection.close_on_drop();

        Ok(Taken {
            connection,
            place,
            home: self.clone(),
        })
    }

    /// Closes all connections. Those in use close when their operations end.
    pub(crate) async fn close(&self) {
        // Places close first, so that ending operations no longer keep their connections.
        self.slots.close();
        self.idle().clear();
        self.pool.close().await;
    }
}

/// Pings a connection. The pool does the same with each connection that is returned to it.
pub(crate) async fn lives<DB: Database>(
    connection: &mut DB::Connection,
) -> Result<bool, sqlx::Error> {
    let asked = tokio::time::timeout(LIFE_WAIT, connection.ping()).await;
    asked
        .unwrap_or(Err(sqlx::Error::PoolTimedOut))
        .map(|()| true)
}

/// Opens a pool once the server has answered. Retries refused connections for [`CONNECT_WAIT`] and
/// then returns the cause; the pool itself would only report a timeout.
pub(crate) async fn open_pool<DB: Database>(
    pool: PoolOptions<DB>,
    server: <DB::Connection as Connection>::Options,
) -> Result<Pool<DB>, SqlError> {
    let asked_at = tokio::time::Instant::now();
    let mut is_first = true;

    loop {
        let left = CONNECT_WAIT.saturating_sub(asked_at.elapsed());
        match tokio::time::timeout(left, server.connect()).await {
            Ok(Ok(connection)) => {
                // The server has answered; a failed close does not matter.
                let _ = connection.close().await;
                return Ok(pool.connect_lazy_with(server));
            }
            Ok(Err(sqlx::Error::Io(error))) if may_be_up_soon(&error) && left > CONNECT_AGAIN => {
                if std::mem::take(&mut is_first) {
                    let server = place(&server);
                    let wait = CONNECT_WAIT;
                    tracing::warn!(
                        %error,
                        "{server} cannot be reached; it is asked again for {wait:?}"
                    );
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

/// The server's kind, host and port, without credentials.
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

/// A connection in use. Dropping it closes the connection, whose state is then unknown.
#[derive(Debug)]
pub(crate) struct Taken<DB: Database> {
    pub(crate) connection: PoolConnection<DB>,
    place: OwnedSemaphorePermit,
    home: Connections<DB>,
}

impl<DB: Database> Taken<DB> {
    /// Ends the use. Keeps the connection open, unless the answer puts its state in doubt.
    pub(crate) fn answered<T>(self, answer: Result<T, SqlError>) -> Result<T, SqlError> {
        let Self {
            connection,
            place,
            home,
        } = self;
        let is_in_doubt = matches!(
            answer,
            Err(SqlError::Store(
                StoreError::Unavailable(_) | StoreError::Internal(_)
            ))
        );

        if !is_in_doubt && !home.slots.is_closed() {
            home.idle().push(Idle {
                connection,
                since: Instant::now(),
            });
        }

        // The place is freed last, so that its next holder finds the connection.
        drop(place);
        answer
    }
}

#[cfg(all(test, feature = "postgres", feature = "mysql"))]
mod tests {
    use sqlx::{mysql::MySqlPoolOptions, postgres::PgPoolOptions};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_absent_server_is_retried_and_named_in_the_error() {
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
            let SqlError::Store(StoreError::Unavailable(told)) = failure else {
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
