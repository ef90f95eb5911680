//! A handler whose code runs on another thread, for tests of the seam between handlers and nodes.

use std::fmt;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use longhaul_domain::{
    Json,
    contract::store::{AttemptEnd, Failure},
};
use schemars::schema_for;
use tokio::sync::{mpsc, oneshot};

use crate::{
    attempt::{AttemptContext, AttemptServices, Handler},
    progress::Progress,
    registry::TypeInfo,
    settings::TypeSettings,
    stop::Stop,
};

/// A task type whose attempts run on threads without a runtime. Such a thread reaches the node only
/// by messages, as a process in another language would.
pub struct ThreadHandler {
    info: TypeInfo,
    script: Arc<dyn Fn(&RemoteAttempt) -> AttemptEnd + Send + Sync>,
}

impl fmt::Debug for ThreadHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.info.name)
    }
}

impl ThreadHandler {
    /// A type that runs this script for each attempt.
    pub fn new(
        name: &str,
        script: impl Fn(&RemoteAttempt) -> AttemptEnd + Send + Sync + 'static,
    ) -> Self {
        Self {
            info: TypeInfo {
                name: name.to_owned(),
                settings: TypeSettings::default(),
                is_cancellable: true,
                finish_step: false,
                params_schema: schema_for!(serde_json::Value),
                result_schema: schema_for!(serde_json::Value),
                progress_schema: schema_for!(Progress),
            },
            script: Arc::new(script),
        }
    }
}

#[async_trait]
impl Handler for ThreadHandler {
    fn info(&self) -> &TypeInfo {
        &self.info
    }

    async fn run(&self, attempt: AttemptContext) -> AttemptEnd {
        let (requests, mut received) = mpsc::unbounded_channel();
        let remote = RemoteAttempt {
            parameters: attempt.task().parameters.clone(),
            checkpoint: attempt.task().checkpoint.clone(),
            must_stop: Arc::default(),
            requests,
        };
        let must_stop = Arc::clone(&remote.must_stop);

        let script = Arc::clone(&self.script);
        let (ended, mut end) = oneshot::channel();
        std::thread::spawn(move || ended.send(script(&remote)));

        loop {
            tokio::select! {
                biased;
                Some(request) = received.recv() => request.carry_out(&*attempt).await,
                // The script learns of a cancel when it next asks.
                () = attempt.stopped(), if !must_stop.load(Ordering::Relaxed) => {
                    must_stop.store(true, Ordering::Relaxed);
                }
                end = &mut end => return end.unwrap_or_else(|_| thread_died()),
            }
        }
    }
}

fn thread_died() -> AttemptEnd {
    AttemptEnd::Failed {
        failure: Failure {
            class: "thread_died".to_owned(),
            message: "the thread of the handler ended without an answer".to_owned(),
            detail: None,
        },
        retry_in_ms: None,
    }
}

/// An attempt as its thread sees it.
#[derive(Debug)]
pub struct RemoteAttempt {
    /// The task's parameters.
    pub parameters: Json,
    /// What an earlier attempt saved.
    pub checkpoint: Option<Json>,
    must_stop: Arc<AtomicBool>,
    requests: mpsc::UnboundedSender<Request>,
}

impl RemoteAttempt {
    /// Whether the script should stop.
    pub fn must_stop(&self) -> bool {
        self.must_stop.load(Ordering::Relaxed)
    }

    /// Reports progress and waits until the node has taken it.
    pub fn progress(&self, percent: f64) -> Result<(), Stop> {
        self.request(|answer| Request::Progress(percent, answer))
    }

    /// Saves a checkpoint and waits until the store has it.
    pub fn save_checkpoint(&self, checkpoint: Json) -> Result<(), Stop> {
        self.request(|answer| Request::Checkpoint(checkpoint, answer))
    }

    /// Appends to the output stream.
    pub fn emit(&self, text: &str) -> Result<(), Stop> {
        self.request(|answer| Request::Emit(text.to_owned(), answer))
    }

    fn request(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<(), Stop>>) -> Request,
    ) -> Result<(), Stop> {
        let (answer, answered) = oneshot::channel();
        let sent = self.requests.send(request(answer));
        sent.map_err(|_| Stop::cancelled())?;

        answered
            .blocking_recv()
            .unwrap_or_else(|_| Err(Stop::cancelled()))
    }
}

#[derive(Debug)]
enum Request {
    Progress(f64, oneshot::Sender<Result<(), Stop>>),
    Checkpoint(Json, oneshot::Sender<Result<(), Stop>>),
    Emit(String, oneshot::Sender<Result<(), Stop>>),
}

impl Request {
    async fn carry_out(self, attempt: &dyn AttemptServices) {
        let (done, answer) = match self {
            Self::Progress(percent, answer) => (report(attempt, percent), answer),
            Self::Checkpoint(checkpoint, answer) => (save(attempt, checkpoint).await, answer),
            Self::Emit(text, answer) => (attempt.emit(&text).await.map(drop), answer),
        };

        // The thread may have ended without waiting for the answer.
        let _ = answer.send(done);
    }
}

fn report(attempt: &dyn AttemptServices, percent: f64) -> Result<(), Stop> {
    attempt.check()?;
    let progress = Progress::percent(percent);
    let json = Json::from_value("progress", &progress)
        .map_err(|error| Stop::invalid("invalid_progress", error))?;
    attempt.report_progress(&progress, json)
}

async fn save(attempt: &dyn AttemptServices, checkpoint: Json) -> Result<(), Stop> {
    attempt.set_checkpoint(checkpoint)?;
    attempt.save_checkpoint().await
}
