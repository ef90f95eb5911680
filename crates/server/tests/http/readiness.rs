//! Readiness for load balancers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul::{
    Longhaul,
    server::{CancellationToken, IdentityMode, ListenerSettings},
};
use longhaul_testkit::fault_proxy::{Fault, FaultProxy};
use serde_json::json;
use sqlx::{Connection as _, Executor as _};
use tokio::net::TcpListener;

use crate::database::{Backend, Database, administer};
use crate::trial::{on, on_every_store};
use crate::{
    client::{Call, DEADLINE, Reply},
    server::Server,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = on_every_store![
        a_draining_node_is_alive_but_not_ready,
        a_process_that_cannot_write_its_store_is_not_ready
    ];
    // SQLite has no server that could be unavailable.
    for store in [Backend::Postgres, Backend::MySql] {
        let name = concat!(
            module_path!(),
            "::a_process_is_not_ready_while_its_store_is_unavailable"
        );
        trials.push(on(store, name, move || {
            a_process_is_not_ready_while_its_store_is_unavailable(store)
        }));
    }

    trials
}

/// Polls readiness, as a load balancer does, until it has this status.
pub(crate) async fn readiness(address: SocketAddr, wanted: u16) -> Reply {
    let polled = async {
        loop {
            let reply = Call::get("/readyz").send(address).await;
            if reply.status == wanted {
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };

    tokio::time::timeout(DEADLINE, polled)
        .await
        .unwrap_or_else(|_| panic!("no {wanted} in time"))
}

async fn a_draining_node_is_alive_but_not_ready(store: Backend) {
    let server = Server::start(store).await;
    readiness(server.address, 200).await;
    server.longhaul.begin_drain();
    server.get("/readyz").await.problem(503, "draining");
    assert_eq!(server.get("/healthz").await.status, 200);
}

async fn a_process_is_not_ready_while_its_store_is_unavailable(store: Backend) {
    let database = Database::make(store).await;
    let (account, address) = database.url.split_once('@').unwrap();
    let (server, name) = address.split_once('/').unwrap();
    let server = tokio::net::lookup_host(server).await.unwrap().next();
    let proxy = FaultProxy::before(server.unwrap(), 0).await.unwrap();
    let longhaul = Longhaul::open(&format!("{account}@{}/{name}", proxy.address()))
        .await
        .unwrap();
    let longhaul = Arc::new(longhaul.without_worker().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();

    let address = listener.local_addr().unwrap();
    let closing = CancellationToken::new();
    let serving = longhaul.serve(
        listener,
        IdentityMode::Dev,
        ListenerSettings::default(),
        closing.clone(),
    );

    let serving = tokio::spawn(serving);
    readiness(address, 200).await;
    proxy.set(Fault::Cut);
    readiness(address, 503).await;

    let metrics = Call::get("/metrics").send(address).await;
    assert!(
        metrics.status == 200 && metrics.text.contains("tasks_store_up 0\n"),
        "{}",
        metrics.text
    );
    proxy.heal();
    readiness(address, 200).await;
    closing.cancel();
    serving.await.unwrap().unwrap();

    Arc::into_inner(longhaul).unwrap().stop().await;
}

/// How long a process may take to notice.
const NOTICES: Duration = Duration::from_secs(5);

/// Reads still succeed: the file is locked, or the server has become read-only.
async fn a_process_that_cannot_write_its_store_is_not_ready(store: Backend) {
    let database = Database::make(store).await;
    let (mut writes, database) = Writes::of(store, database).await;
    let server = Server::start_on(database).await;
    readiness(server.address, 200).await;

    // No node serves the queue, so the task waits.
    let id = server
        .submit("sample.echo", json!(1), json!({"queue": "elsewhere"}))
        .await;
    let why = format!("/api/tasks/{id}/why");
    assert_eq!(
        server.get(&why).await.expect(200)["reason"],
        "queue_not_served"
    );

    writes.refuse().await;
    let not_written = "the store can be read but not written";
    let says = |reply: &Reply, text: &str| reply.text.contains(text);
    soon(&server, "/readyz", |reply| {
        reply.status == 503 && says(reply, not_written)
    })
    .await
    .problem(503, "store_unavailable");

    soon(&server, &why, |reply| says(reply, "store_not_writable")).await;
    soon(&server, "/metrics", |reply| {
        says(reply, "tasks_store_up 0\n") && says(reply, "tasks_queue_size{")
    })
    .await;

    writes.accept().await;
    readiness(server.address, 200).await;
    soon(&server, &why, |reply| says(reply, "queue_not_served")).await;
    drop(server);
    writes.clean_up().await;
}

/// Asks until the answer is as wanted, for as long as a process may take to notice. A database that
/// becomes read-only may end its connections, so that a read fails, too.
async fn soon(server: &Server, path: &str, is_wanted: impl Fn(&Reply) -> bool) -> Reply {
    let mut last = None;
    let last_reply = &mut last;
    let asking = async {
        loop {
            let reply = server.get(path).await;
            if is_wanted(&reply) {
                return reply;
            }
            *last_reply = Some(reply);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };

    let answer = tokio::time::timeout(NOTICES, asking).await;
    answer.unwrap_or_else(|_| panic!("not as wanted in time: {last:?}"))
}

/// Makes a database refuse writes, and accept them again.
enum Writes {
    /// Another connection holds the write lock of the file.
    Locked {
        url: String,
        holder: Option<sqlx::SqliteConnection>,
    },
    /// New transactions are read-only.
    PostgresReadOnly { name: String },
    /// The server is read-only for this user, and for all others but administrators.
    MySqlReadOnly { user: String },
}

impl Writes {
    /// The database as a server may use it.
    async fn of(store: Backend, mut database: Database) -> (Self, Database) {
        let url = database.url.clone();
        let name = url.rsplit('/').next().unwrap().to_owned();

        let writes = match store {
            Backend::Sqlite => Self::Locked { url, holder: None },
            Backend::Postgres => Self::PostgresReadOnly { name },
            Backend::MySql => {
                let user = format!("u{:x}", digest(&name));
                let place = url.rsplit_once('@').unwrap().1;
                // The first one is for a server on which this case failed halfway before.
                for statement in [
                    "SET GLOBAL read_only = 0".to_owned(),
                    format!("CREATE USER {user} IDENTIFIED BY 'readiness'"),
                    format!("GRANT ALL ON {name}.* TO {user}"),
                ] {
                    administer(store, statement).await;
                }
                database.url = format!("mysql://{user}:readiness@{place}");
                Self::MySqlReadOnly { user }
            }
        };

        (writes, database)
    }

    async fn refuse(&mut self) {
        match self {
            Self::Locked { url, holder } => {
                let mut connection = sqlx::SqliteConnection::connect(url).await.unwrap();
                connection.execute("BEGIN IMMEDIATE").await.unwrap();
                *holder = Some(connection);
            }
            Self::PostgresReadOnly { name } => {
                let change = "SET default_transaction_read_only = on";
                administer(Backend::Postgres, format!("ALTER DATABASE {name} {change}")).await;
                disconnect_all(name).await;
            }
            Self::MySqlReadOnly { .. } => {
                administer(Backend::MySql, "SET GLOBAL read_only = 1".to_owned()).await;
            }
        }
    }

    async fn accept(&mut self) {
        match self {
            Self::Locked { holder, .. } => {
                holder.take().unwrap().close().await.unwrap();
            }
            Self::PostgresReadOnly { name } => {
                let change = "RESET default_transaction_read_only";
                administer(Backend::Postgres, format!("ALTER DATABASE {name} {change}")).await;
                disconnect_all(name).await;
            }
            Self::MySqlReadOnly { .. } => {
                administer(Backend::MySql, "SET GLOBAL read_only = 0".to_owned()).await;
            }
        }
    }

    async fn clean_up(self) {
        if let Self::MySqlReadOnly { user } = self {
            administer(Backend::MySql, format!("DROP USER {user}")).await;
        }
    }
}

/// A short name for a user; MySQL allows 32 characters.
fn digest(name: &str) -> u32 {
    let add = |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte));
    name.bytes().fold(0, add)
}

/// Open connections keep the settings that they began with.
async fn disconnect_all(database: &str) {
    let others = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
    );
    administer(Backend::Postgres, others).await;
}
