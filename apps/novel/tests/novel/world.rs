//! A server with the application, and a client that calls it.

use std::sync::Arc;
use std::time::Duration;

use eventsource_stream::Eventsource as _;
use futures::StreamExt as _;
use longhaul::{
    Longhaul, Status, TaskId, TaskRecord,
    server::{CancellationToken, Gateway, IdentityMode, ListenerSettings, Network},
};
use longhaul_novel::{
    Library, Settings, install_with,
    provider::{Offline, Provider},
    tasks::{GenerateSummary, SceneWriter},
};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::fresh::FreshDatabase;

/// No step of a test takes this long.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) base: String,
    pub(crate) longhaul: Arc<Longhaul>,
    pub(crate) database: FreshDatabase,
    closing: CancellationToken,
}

pub(crate) fn settings() -> Settings {
    Settings {
        requests_per_minute: 600_000,
        ..Settings::default()
    }
}

pub(crate) async fn writer(url: &str, provider: Arc<dyn Provider>) -> SceneWriter {
    SceneWriter {
        library: Library::open(url).await.unwrap(),
        provider,
    }
}

/// The built-in provider, without pauses.
pub(crate) fn offline() -> Arc<dyn Provider> {
    Arc::new(Offline::paced(Duration::ZERO))
}

impl World {
    pub(crate) async fn start(database: FreshDatabase) -> Self {
        Self::start_with(database, offline()).await
    }

    pub(crate) async fn start_with(database: FreshDatabase, provider: Arc<dyn Provider>) -> Self {
        let builder = Longhaul::open(&database.url).await.unwrap();
        let builder = install_with(builder, writer(&database.url, provider).await, &settings());
        let longhaul = Arc::new(builder.start().await.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let closing = CancellationToken::new();

        let serving = longhaul.serve(
            listener,
            IdentityMode::TrustedHeader(Gateway::within(Network::LOOPBACK.to_vec())),
            ListenerSettings::default(),
            closing.clone(),
        );

        tokio::spawn(serving);
        Self {
            base: format!("http://{address}"),
            longhaul,
            database,
            closing,
        }
    }

    pub(crate) async fn stop(self) -> FreshDatabase {
        self.closing.cancel();
        if let Some(longhaul) = Arc::into_inner(self.longhaul) {
            longhaul.stop().await;
        }
        self.database
    }

    pub(crate) fn get(&self, path: &str) -> Call {
        self.call(reqwest::Method::GET, path)
    }

    pub(crate) fn post(&self, path: &str) -> Call {
        self.call(reqwest::Method::POST, path)
    }

    pub(crate) fn call(&self, method: reqwest::Method, path: &str) -> Call {
        let request = reqwest::Client::new()
            .request(method, format!("{}{path}", self.base))
            .timeout(DEADLINE);
        Call {
            request: Some(request),
            user: "u-1".to_owned(),
        }
    }

    /// Imports a text and waits for the end of the task.
    pub(crate) async fn import(&self, text: &str) -> String {
        let answer = self
            .post("/novel/api/novels?title=A+tale")
            .text(text)
            .expect(202)
            .await;
        self.ended(&answer["taskId"]).await;
        answer["novelId"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn ended(&self, id: &Value) -> TaskRecord {
        let id = TaskId(id.as_str().unwrap().parse().unwrap());
        let ended = self.longhaul.handle::<GenerateSummary>(id);
        tokio::time::timeout(DEADLINE, ended.ended())
            .await
            .expect("an end in time")
            .unwrap()
    }

    pub(crate) async fn completed(&self, id: &Value) -> Value {
        let task = self.ended(id).await;
        assert_eq!(task.status, Status::Completed, "{:?}", task.error);
        serde_json::from_str(task.result.unwrap().as_str()).unwrap()
    }

    /// The chunks of an ended task's output, as a reader gets them. No chunk may be taken back.
    pub(crate) async fn output(&self, id: &Value) -> Vec<String> {
        let stream = self
            .get(&format!("/api/tasks/{}/stream", id.as_str().unwrap()))
            .send()
            .await;
        let mut events = stream.bytes_stream().eventsource();
        let mut chunks = Vec::new();

        let read = async {
            while let Some(event) = events.next().await {
                let event = event.unwrap();
                match event.event.as_str() {
                    "chunk" => {
                        let chunk: Value = serde_json::from_str(&event.data).unwrap();
                        chunks.push(chunk["text"].as_str().unwrap().to_owned());
                    }
                    "end" => return,
                    other => panic!("{other} in the output: {}", event.data),
                }
            }

            panic!("the output has no end");
        };

        tokio::time::timeout(DEADLINE, read)
            .await
            .expect("the whole output in time");
        chunks
    }

    pub(crate) async fn novel(&self, id: &str) -> Value {
        self.get(&format!("/novel/api/novels/{id}"))
            .expect(200)
            .await
    }
}

/// The summaries of a novel, scene by scene.
pub(crate) fn summaries(novel: &Value) -> Vec<Option<String>> {
    let scenes = novel["chapters"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|chapter| chapter["scenes"].as_array().unwrap());

    scenes
        .map(|scene| scene["summary"].as_str().map(str::to_owned))
        .collect()
}

pub(crate) struct Call {
    request: Option<reqwest::RequestBuilder>,
    user: String,
}

impl Call {
    fn with(
        mut self,
        change: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder,
    ) -> Self {
        self.request = self.request.map(change);
        self
    }

    pub(crate) fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    pub(crate) fn header(self, name: &str, value: &str) -> Self {
        self.with(|request| request.header(name, value))
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json")
            .with(|request| request.body(body.to_string()))
    }

    pub(crate) fn text(self, body: &str) -> Self {
        self.header("content-type", "text/plain")
            .with(|request| request.body(body.to_owned()))
    }

    pub(crate) async fn send(self) -> reqwest::Response {
        self.request
            .unwrap()
            .header("x-user-id", self.user)
            .send()
            .await
            .unwrap()
    }

    /// The body of an answer with this status.
    pub(crate) async fn expect(self, status: u16) -> Value {
        let response = self.send().await;
        let found = response.status().as_u16();
        let text = response.text().await.unwrap();
        assert_eq!(found, status, "{text}");

        if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).unwrap()
        }
    }

    /// The problem document with this status and code.
    pub(crate) async fn problem(self, status: u16, code: &str) -> Value {
        let problem = self.expect(status).await;
        assert_eq!(problem["code"], code, "{problem}");
        problem
    }
}
