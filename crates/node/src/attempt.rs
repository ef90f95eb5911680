//! One running attempt, and what its handler can ask for.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};
use std::time::Instant;

use async_trait::async_trait;
use longhaul_domain::{
    Json, Lease, LogLevel, LogLine, StoreError, TaskInfo, TaskRecord,
    contract::{
        artifact_store::{ArtifactError, NewArtifact},
        rate_limiter::Reservation,
        store::{AttemptEnd, AttemptReport},
    },
    ids::ArtifactId,
};
use longhaul_engine::{
    Engine,
    commands::finish::EndedAttempt,
    files::{FileError, StoredFile},
    trace::{self, TraceContext},
};
use longhaul_sdk::{
    AttemptServices, Children, Client, Handler, Progress, Stop, StopReason, TypeInfo, TypeSettings,
    random,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{checkpoint::Checkpoint, in_flight::Taken, node::Node};

/// The target of handlers' lines in the log of the process.
const HANDLER: &str = "longhaul::handler";

/// See the module.
#[derive(Debug)]
pub(crate) struct RunningAttempt {
    pub(crate) task: TaskRecord,
    pub(crate) lease: Lease,
    pub(crate) info: Arc<TaskInfo>,
    pub(crate) handler: Arc<dyn Handler>,
    /// Carries the ids of the task into its log lines and its trace.
    pub(crate) span: tracing::Span,
    node: Arc<Node>,
    started: Instant,
    stop: CancellationToken,
    stop_reason: Mutex<Option<StopReason>>,
    /// Whether the handler has ended. Parts of it that still run write nothing more.
    is_over: Mutex<bool>,
    /// The rate limits that the attempt has used, the last one at the end.
    limits: Mutex<Vec<String>>,
    checkpoint: Arc<Checkpoint>,
    has_output: AtomicBool,
    has_logs: AtomicBool,
    /// The URL of the first file that the attempt stored.
    result_url: OnceLock<String>,
}

impl RunningAttempt {
    pub(crate) fn new(
        node: &Arc<Node>,
        task: TaskRecord,
        taken: Taken,
        handler: Arc<dyn Handler>,
    ) -> Self {
        Self {
            span: span_of(&task),
            task,
            lease: taken.lease,
            info: taken.info,
            handler,
            node: Arc::clone(node),
            started: Instant::now(),
            stop: CancellationToken::new(),
            stop_reason: Mutex::default(),
            is_over: Mutex::default(),
            limits: Mutex::default(),
            checkpoint: Arc::default(),
            has_output: AtomicBool::new(false),
            has_logs: AtomicBool::new(false),
            result_url: OnceLock::new(),
        }
    }

    fn engine(&self) -> &Arc<Engine> {
        self.node.engine()
    }

    /// The settings of the task's type.
    pub(crate) fn settings(&self) -> &TypeSettings {
        &self.handler.info().settings
    }

    /// Asks the handler to stop. The first reason counts.
    pub(crate) fn stop(&self, reason: StopReason) {
        // In this order: a handler that the token wakes asks for the reason.
        self.stop_reason.lock().get_or_insert(reason);
        self.stop.cancel();
    }

    /// The handler has ended. From here on the attempt writes nothing more, and parts of the
    /// handler that still run should stop.
    pub(crate) fn close(&self) {
        // In this order: what the token wakes must find that the attempt is over.
        *self.is_over.lock() = true;
        self.stop.cancel();
    }

    /// Writes something, unless the handler has ended.
    fn unless_over(&self, write: impl FnOnce()) -> Result<(), Stop> {
        // The lock is held during the write: none may follow `close`.
        let is_over = self.is_over.lock();
        if *is_over {
            return Err(Stop::cancelled());
        }

        write();
        Ok(())
    }

    pub(crate) fn take_limits(&self) -> Vec<String> {
        // Each limit is settled once, by the one caller that takes it.
        std::mem::take(&mut *self.limits.lock())
    }

    pub(crate) fn has_output(&self) -> bool {
        self.has_output.load(Ordering::Relaxed)
    }

    pub(crate) fn has_logs(&self) -> bool {
        self.has_logs.load(Ordering::Relaxed)
    }

    /// The attempt with its end, for the reporter.
    pub(crate) fn with_end(&self, end: AttemptEnd) -> EndedAttempt {
        let report = AttemptReport {
            lease: self.lease,
            end,
        };

        let mut ended = EndedAttempt::new(&self.task, Arc::clone(&self.info), report);
        ended.ran = Some(self.started.elapsed());
        ended.has_output = self.has_output();
        ended
    }

    /// Takes over the output stream of the task, once. Entries after `last` are removed.
    async fn begin_output(&self, last: u64) -> Result<(), Stop> {
        if self.has_output.swap(true, Ordering::Relaxed) {
            return Ok(());
        }

        let streams = &self.node.client.streams;
        let begun = streams.begin(self.task.id, self.task.attempt, last).await;
        begun.map_err(Stop::retryable)
    }
}

/// The span of an attempt. It is visible at every level, so that warnings carry its ids, too.
fn span_of(task: &TaskRecord) -> tracing::Span {
    let context = TraceContext::of(task);
    let span = tracing::error_span!(
        "task",
        otel.name = %format_args!("run {}", task.task_type),
        otel.kind = "consumer",
        trace_id = context.map(|context| format!("{:032x}", context.trace_id())),
        correlation_id = task.correlation_id,
        user_id = task.owner,
        task_id = %task.id.0,
        task_type = task.task_type,
        queue = task.queue.as_str(),
        attempt = task.attempt,
    );

    trace::attach(&span, context);
    span
}

#[async_trait]
impl AttemptServices for RunningAttempt {
    fn task(&self) -> &TaskRecord {
        &self.task
    }

    fn info(&self) -> &Arc<TaskInfo> {
        &self.info
    }

    fn lease(&self) -> Lease {
        self.lease
    }

    fn type_info(&self) -> &TypeInfo {
        self.handler.info()
    }

    fn client(&self) -> &Arc<Client> {
        &self.node.client
    }

    fn trace_context(&self) -> Option<TraceContext> {
        trace::context_of(&self.span).or_else(|| TraceContext::of(&self.task))
    }

    fn stop_reason(&self) -> Option<StopReason> {
        // The reason is set once, so a copy of it stays true.
        *self.stop_reason.lock()
    }

    fn check(&self) -> Result<(), Stop> {
        match self.stop_reason() {
            None => self.unless_over(|| {}),
            Some(StopReason::Drain) => Err(Stop::hand_back()),
            Some(StopReason::Cancelled | StopReason::Lost) => Err(Stop::cancelled()),
        }
    }

    async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    fn report_progress(&self, progress: &Progress, json: Json) -> Result<(), Stop> {
        let is_complete = progress.percent >= 100.0;
        self.unless_over(|| {
            self.node.progress.add(self.lease, json, is_complete);
            if let Ok(value) = serde_json::to_value(progress) {
                self.engine().note_progress(&self.task, value);
            }
        })
    }

    fn log(&self, level: LogLevel, message: String) {
        self.span.in_scope(|| match level {
            LogLevel::Info => tracing::info!(target: HANDLER, "{message}"),
            LogLevel::Warn => tracing::warn!(target: HANDLER, "{message}"),
            LogLevel::Error => tracing::error!(target: HANDLER, "{message}"),
        });

        self.has_logs.store(true, Ordering::Relaxed);
        self.node.logs.add(LogLine {
            lease: self.lease,
            level,
            message,
        });
    }

    fn set_checkpoint(&self, checkpoint: Json) -> Result<(), Stop> {
        self.unless_over(|| self.checkpoint.set(checkpoint))
    }

    async fn save_checkpoint(&self) -> Result<(), Stop> {
        self.checkpoint.save(self.engine(), self.lease).await
    }

    async fn children(&self) -> Result<Children, StoreError> {
        Children::load(self.engine().reads(), self.task.id).await
    }

    async fn ask(&self, question: &str, value: Json) -> Result<Json, Stop> {
        let answers = self.node.client.registry.answers();
        answers
            .answer(question, value, Arc::clone(&self.info))
            .await
    }

    async fn reserve_permit(&self, key: &str) -> Result<Reservation, Stop> {
        let wait = self.settings().permit_wait.as_millis();
        let wait_ms = u64::try_from(wait).unwrap_or(u64::MAX);

        let reserved = self.node.limiter.reserve(key, wait_ms).await;
        let reservation = reserved.map_err(Stop::retryable)?;
        if matches!(reservation, Reservation::Refused { .. }) {
            self.engine().metrics().throttled(key);
        }
        Ok(reservation)
    }

    fn note_limit(&self, key: &str) {
        // One lock for both steps: a clone of the job may note a limit at the same time.
        let mut limits = self.limits.lock();
        limits.retain(|used| used != key);
        limits.push(key.to_owned());
    }

    async fn emit(&self, text: &str) -> Result<u64, Stop> {
        self.begin_output(0).await?;
        let streams = &self.node.client.streams;
        let appended = streams.append(self.task.id, self.task.attempt, text).await;
        appended.map_err(Stop::retryable)
    }

    async fn resume_output(&self, number: u64) -> Result<(), Stop> {
        self.begin_output(number).await
    }

    async fn store_artifact(
        &self,
        file_name: &str,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<StoredFile, Stop> {
        let artifact = NewArtifact {
            id: ArtifactId(random::id()),
            task_id: self.task.id,
            attempt: self.task.attempt,
            file_name,
            content_type,
            bytes,
        };

        let files = &self.node.client.files;
        let stored = files
            .keep(self.engine(), &self.task, self.lease, artifact)
            .await
            .map_err(stop_for_file_error)?;
        self.result_url.get_or_init(|| stored.url.clone());
        Ok(stored)
    }

    fn result_url(&self) -> Option<String> {
        self.result_url.get().cloned()
    }
}

fn stop_for_file_error(error: FileError) -> Stop {
    match error {
        FileError::Lost => Stop::cancelled(),
        FileError::Artifact(error @ ArtifactError::Unavailable(_)) => Stop::retryable(error),
        FileError::Artifact(error) => error.into(),
        FileError::Store(error) => error.into(),
    }
}
