//! A server in this process for each test.

use std::net::SocketAddr;
use std::sync::Arc;

use longhaul::{
    Builder, Longhaul, RetryPolicy, Status, Subscription, TaskId, TaskRecord,
    server::{CancellationToken, Gateway, IdentityMode, ListenerSettings, Network},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use longhaul_cli::samples;

use super::database::{Backend, Database};
use super::{
    client::{Call, DEADLINE, Reply},
    types,
};

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) longhaul: Arc<Longhaul>,
    pub(crate) closing: CancellationToken,
    pub(crate) serving: JoinHandle<()>,
    pub(crate) database: Database,
}

impl Server {
    pub(crate) async fn start(store: Backend) -> Self {
        Self::start_with(store, IdentityMode::Dev, ListenerSettings::default()).await
    }

    pub(crate) async fn behind_a_gateway(store: Backend) -> Self {
        Self::start_with(
            store,
            IdentityMode::TrustedHeader(Gateway::within(Network::LOOPBACK.to_vec())),
            ListenerSettings::default(),
        )
        .await
    }

    pub(crate) async fn start_with_slots(store: Backend, slots: usize) -> Self {
        Self::start_as(
            store,
            IdentityMode::Dev,
            ListenerSettings::default(),
            |builder| builder.slots(slots),
        )
        .await
    }

    pub(crate) async fn start_with(
        store: Backend,
        identity: IdentityMode,
        settings: ListenerSettings,
    ) -> Self {
        Self::start_as(store, identity, settings, |builder| builder).await
    }

    pub(crate) async fn configured(
        store: Backend,
        identity: IdentityMode,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        Self::start_as(store, identity, ListenerSettings::default(), configure).await
    }

    pub(crate) async fn start_as(
        store: Backend,
        identity: IdentityMode,
        settings: ListenerSettings,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let (database, builder) = Self::prepare(store).await;
        let longhaul = configure(builder).start().await.unwrap();
        Self::serve(database, longhaul, identity, settings).await
    }

    /// A node that runs no task.
    pub(crate) async fn with_maintenance_only(store: Backend) -> Self {
        let (database, builder) = Self::prepare(store).await;
        let longhaul = builder.start_maintenance().await.unwrap();
        Self::serve(
            database,
            longhaul,
            IdentityMode::Dev,
            ListenerSettings::default(),
        )
        .await
    }

    /// A server on a database that the test has prepared.
    pub(crate) async fn start_on(database: Database) -> Self {
        let (database, builder) = Self::prepare_on(database).await;
        let longhaul = builder.start().await.unwrap();
        Self::serve(
            database,
            longhaul,
            IdentityMode::Dev,
            ListenerSettings::default(),
        )
        .await
    }

    async fn prepare(store: Backend) -> (Database, Builder) {
        Self::prepare_on(Database::make(store).await).await
    }

    async fn prepare_on(database: Database) -> (Database, Builder) {
        std::fs::create_dir_all(database.folder.path().join("data")).unwrap();
        let builder = Longhaul::open(&database.url)
            .await
            .unwrap()
            .artifacts(database.folder.path().join("artifacts"));
        (database, types::register(samples::register(builder)))
    }

    async fn serve(
        database: Database,
        longhaul: Longhaul,
        identity: IdentityMode,
        settings: ListenerSettings,
    ) -> Self {
        let longhaul = Arc::new(longhaul);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let closing = CancellationToken::new();

        let serving = tokio::spawn({
            let longhaul = Arc::clone(&longhaul);
            let closing = closing.clone();
            async move {
                longhaul
                    .serve(listener, identity, settings, closing)
                    .await
                    .unwrap()
            }
        });

        Self {
            address,
            longhaul,
            closing,
            serving,
            database,
        }
    }

    pub(crate) async fn send(&self, call: Call) -> Reply {
        call.send(self.address).await
    }

    pub(crate) async fn get(&self, path: impl Into<String>) -> Reply {
        self.send(Call::get(path)).await
    }

    pub(crate) async fn post(&self, path: impl Into<String>, body: &Value) -> Reply {
        self.send(Call::post(path, body)).await
    }

    /// Submits a task with the additional fields of `more`, and returns its id.
    pub(crate) async fn submit(&self, task_type: &str, parameters: Value, more: Value) -> String {
        self.submit_as("default", task_type, parameters, more).await
    }

    pub(crate) async fn submit_as(
        &self,
        user: &str,
        task_type: &str,
        parameters: Value,
        more: Value,
    ) -> String {
        let mut body = json!({ "taskType": task_type, "parameters": parameters });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }

        let answer = self
            .send(Call::post("/api/tasks", &body).user(user))
            .await
            .expect(202);

        answer["taskId"].as_str().unwrap().to_owned()
    }

    /// A task that is due tomorrow.
    pub(crate) async fn submit_for_later(&self, user: &str) -> String {
        self.submit_as(user, "sample.echo", Value::Null, json!({ "delay": "1d" }))
            .await
    }

    pub(crate) async fn task(&self, id: &str) -> Value {
        self.get(format!("/api/tasks/{id}")).await.expect(200)
    }

    /// Waits until the task in the store satisfies the condition.
    pub(crate) async fn until(
        &self,
        id: &str,
        condition: impl Fn(&TaskRecord) -> bool,
    ) -> TaskRecord {
        let id = TaskId(id.parse().unwrap());
        let subscription = Subscription {
            task_id: Some(id),
            owner: None,
        };
        let mut events = self.longhaul.events(subscription);

        let satisfied = async {
            loop {
                let task = self.longhaul.task(id).await.unwrap();
                if condition(&task) {
                    return task;
                }

                // Some changes publish no event.
                let _ =
                    tokio::time::timeout(std::time::Duration::from_millis(50), events.next()).await;
            }
        };

        tokio::time::timeout(DEADLINE, satisfied)
            .await
            .expect("the expected task in time")
    }

    pub(crate) async fn until_status(&self, id: &str, status: Status) -> TaskRecord {
        self.until(id, |task| task.status == status).await
    }

    pub(crate) async fn until_ended(&self, id: &str) -> TaskRecord {
        self.until(id, |task| task.status.is_ended()).await
    }
}

/// The default retry policy of the samples.
pub(crate) fn default_retry() -> Value {
    let RetryPolicy {
        initial_ms,
        factor,
        jitter,
        max_ms,
    } = RetryPolicy::default();
    json!({ "initialMs": initial_ms, "factor": factor, "jitter": jitter, "maxMs": max_ms })
}

/// A variable that `make test` sets.
#[expect(
    clippy::disallowed_methods,
    reason = "these tests read the environment only here"
)]
pub(crate) fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
