//! The job: everything that a handler can ask for while it runs (R5).

use std::sync::{Arc, atomic::Ordering};
use std::time::Duration;

use longhaul_domain::{
    Invalid, Json, LogLevel, LogLine, TaskId,
    contract::{
        artifact_store::{ArtifactError, NewArtifact},
        rate_limiter::Reservation,
    },
    ids::ArtifactId,
};
use longhaul_engine::{
    desk::StopReason,
    files::{FileError, KeptFile},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    kind::Named,
    progress::Progress,
    question::Question,
    random,
    run::Run,
    state::{State, save_newest},
    stop::Stop,
    submission::{Submission, submit_children},
    task::Task,
};

/// The target under which the lines of handlers appear in the log of the process.
const HANDLER: &str = "longhaul::handler";

/// One attempt, as its handler sees it. Clones are the same attempt.
#[derive(Debug, Clone)]
pub struct Job(pub(crate) Arc<Run>);

impl Job {
    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.0.task.id
    }

    /// Whose task it is.
    pub fn owner(&self) -> &str {
        &self.0.task.owner
    }

    /// Numbered from 1, also the fencing number of everything that this attempt writes.
    pub fn attempt(&self) -> u32 {
        self.0.task.attempt
    }

    /// The task that submitted this one, if one did.
    pub fn parent(&self) -> Option<TaskId> {
        self.0.task.parent_id
    }

    /// The queue that it was claimed from.
    pub fn queue(&self) -> &str {
        &self.0.task.queue
    }

    /// What ties it to a request of the submitter's; children inherit it.
    pub fn correlation_id(&self) -> Option<&str> {
        self.0.task.correlation_id.as_deref()
    }

    /// The record as it was claimed.
    pub fn task(&self) -> &longhaul_domain::Task {
        &self.0.task
    }

    // Stopping.

    /// Whether the handler should stop: the task was cancelled, another attempt took over, the node shuts down, or the
    /// attempt is over (past its timeout, or the handler has returned and something that it started goes on).
    pub fn is_cancelled(&self) -> bool {
        self.check().is_err()
    }

    /// Why the handler should stop, if it should; nothing when its attempt is over. What a cancel calls for, such as giving
    /// money back or deleting half a file, is wrong at a shutdown, after which the task goes on elsewhere.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.0.stop_reason()
    }

    /// Waits until the handler should stop.
    pub async fn cancelled(&self) {
        self.0.stopped().await;
    }

    /// Leaves the handler with `?` when it should stop.
    pub fn check(&self) -> Result<(), Stop> {
        self.0.check()
    }

    /// Sleeps, and leaves with `?` when the handler should stop meanwhile.
    pub async fn sleep(&self, duration: Duration) -> Result<(), Stop> {
        tokio::select! {
            () = tokio::time::sleep(duration) => Ok(()),
            () = self.cancelled() => self.check(),
        }
    }

    // Telling.

    /// Reports progress: a percentage, or a [`Progress`]. Seen at once; the store hears of it every few seconds.
    pub async fn progress(&self, progress: impl Into<Progress>) -> Result<(), Stop> {
        self.check()?;
        let progress = progress.into();
        let json = Json::from_value("progress", &progress)
            .map_err(|error| Stop::invalid("invalid_progress", error))?;
        let run = &self.0;
        run.before_its_end(|| {
            run.services
                .progress
                .note(run.lease, json, progress.percent >= 100.0);
            if let Ok(value) = serde_json::to_value(&progress) {
                run.services.engine.note_progress(&run.task, value);
            }
        })
    }

    /// Keeps a line with the task, for people who look at it later.
    pub fn info(&self, message: impl Into<String>) {
        self.log(LogLevel::Info, message.into());
    }

    /// Like [`Self::info`], for what somebody should look at.
    pub fn warn(&self, message: impl Into<String>) {
        self.log(LogLevel::Warn, message.into());
    }

    /// Like [`Self::info`], for what went wrong.
    pub fn error(&self, message: impl Into<String>) {
        self.log(LogLevel::Error, message.into());
    }

    fn log(&self, level: LogLevel, message: String) {
        self.0.span.in_scope(|| match level {
            LogLevel::Info => tracing::info!(target: HANDLER, "{message}"),
            LogLevel::Warn => tracing::warn!(target: HANDLER, "{message}"),
            LogLevel::Error => tracing::error!(target: HANDLER, "{message}"),
        });
        self.0.writes_logs.store(true, Ordering::Relaxed);
        self.0.services.scribe.note(LogLine {
            lease: self.0.lease,
            level,
            message,
        });
    }

    // Checkpoints.

    /// What an earlier attempt saved.
    pub fn checkpoint<S: DeserializeOwned>(&self) -> Result<Option<S>, Stop> {
        let saved = self.0.task.checkpoint.as_ref().map(Json::read).transpose();
        saved.map_err(|error| {
            let allowed = "what the handler reads; `#[serde(default)]` on what was added since";
            Stop::invalid(
                "invalid_checkpoint",
                Invalid::new("checkpoint", format!("does not fit: {error}"), allowed),
            )
        })
    }

    /// Saves a checkpoint now. When this returns, the next attempt starts from it.
    pub async fn save_checkpoint(&self, state: &impl Serialize) -> Result<(), Stop> {
        let json = Json::from_value("checkpoint", state)
            .map_err(|error| Stop::invalid("invalid_checkpoint", error))?;
        self.0.before_its_end(|| self.0.unsaved.set(json))?;
        save_newest(&self.0).await
    }

    /// The state of a long handler: what an earlier attempt saved, or the default. It is saved by itself at the type's
    /// interval and at a shutdown, and whenever [`State::save`] is called.
    pub fn state<S>(&self) -> Result<State<S>, Stop>
    where
        S: Serialize + DeserializeOwned + Default + Send + 'static,
    {
        Ok(State::start(
            self.clone(),
            self.checkpoint()?.unwrap_or_default(),
        ))
    }

    // Children.

    /// A child to be submitted: `job.submit::<Page>(page).await?`. A later attempt that submits the same again gets
    /// the same task. A child is known by its type and parameters, and among equal ones by its number in the attempt; the
    /// order of different ones does not matter, and the finish step's children are apart from those before it.
    ///
    /// A handler that submits equal children and may skip some of them because of its checkpoint gives each a key:
    /// `job.submit::<Page>(page).idempotency_key("round 2").await?`. Then the key alone names the child.
    pub fn submit<C: Task>(&self, params: C::Params) -> Submission<C> {
        Submission::child(&self.0, &params)
    }

    /// A child of a type that is known by its name: `job.submit_named::<_, String>("shout", text).await?`.
    pub fn submit_named<P, R>(&self, task_type: &str, params: P) -> Submission<Named<P, R>>
    where
        P: Serialize + 'static,
        R: DeserializeOwned + 'static,
    {
        Submission::named(&self.0.services, task_type, &params).below(&self.0)
    }

    /// Many children of one type, in order. A later attempt finds them again as those of [`Self::submit`].
    pub async fn submit_all<C: Task>(
        &self,
        params: impl IntoIterator<Item = C::Params>,
    ) -> Result<Vec<TaskId>, Stop> {
        self.check()?;
        submit_children::<C>(&self.0, params).await
    }

    // Asking.

    /// Asks whoever knows, in this process, and goes on with the answer of this moment: `job.ask(MayUse { picture }).await?`.
    /// [`Builder::answer`](../longhaul/struct.Builder.html#method.answer) says who that is. An error of theirs ends the
    /// attempt as one of the handler's own would; without an answer within ten seconds it is retried.
    pub async fn ask<Q: Question>(&self, question: Q) -> Result<Q::Answer, Stop> {
        self.check()?;
        tokio::select! {
            answer = self.0.services.registry.answers.ask(&question, Arc::clone(&self.0.info)) => answer,
            () = self.cancelled() => Err(self.check().err().unwrap_or_else(Stop::cancelled)),
        }
    }

    // Limits.

    /// A permit to call a provider (`openai`, `openai/gpt-4`). Waits for its turn as long as the type says; then the
    /// task is put back for later without using up a retry.
    pub async fn permit(&self, key: &str) -> Result<Permit, Stop> {
        self.check()?;
        let max_wait_ms =
            u64::try_from(self.0.settings().permit_wait.as_millis()).unwrap_or(u64::MAX);
        let reserved = self.0.services.limiter.reserve(key, max_wait_ms).await;
        match reserved.map_err(Stop::retryable)? {
            Reservation::Granted { wait_ms } => {
                if wait_ms > 0 {
                    self.sleep(Duration::from_millis(wait_ms)).await?;
                }
                self.0.note_limit(key);
                Ok(Permit {
                    key: key.to_owned(),
                })
            }
            Reservation::Refused { retry_in_ms } => {
                let after = Duration::from_millis(retry_in_ms.max(1));
                self.0.services.engine.metrics.throttled(key);
                Err(Stop::limited(after, key))
            }
        }
    }

    // Output.

    /// Appends text to the task's output stream and answers with its number. A new attempt starts the stream over,
    /// unless it has called [`Self::resume_output`].
    pub async fn emit(&self, text: &str) -> Result<u64, Stop> {
        self.check()?;
        self.begin_output(0).await?;
        let appended = self
            .0
            .services
            .streams
            .append(self.id(), self.attempt(), text)
            .await;
        appended.map_err(Stop::retryable)
    }

    /// Goes on with the output of an earlier attempt after the entry of this number; what follows it is taken back.
    pub async fn resume_output(&self, number: u64) -> Result<(), Stop> {
        self.begin_output(number).await
    }

    async fn begin_output(&self, keep: u64) -> Result<(), Stop> {
        if self.0.writes_output.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let begun = self
            .0
            .services
            .streams
            .begin(self.id(), self.attempt(), keep)
            .await;
        begun.map_err(Stop::retryable)
    }

    /// Keeps a file that the task made. People see it, and its URL works, once this attempt's result is accepted; the
    /// first file's URL becomes the task's `resultUrl`.
    pub async fn store_artifact(
        &self,
        file_name: &str,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<KeptFile, Stop> {
        self.check()?;
        let (task_id, attempt) = (self.id(), self.attempt());
        let id = ArtifactId(random::id());
        let artifact = NewArtifact {
            id,
            task_id,
            attempt,
            file_name,
            content_type,
            bytes,
        };
        let services = &self.0.services;
        match services
            .files
            .keep(&services.engine, &self.0.task, self.0.lease, artifact)
            .await
        {
            Ok(kept) => {
                self.0.result_url.get_or_init(|| kept.url.clone());
                Ok(kept)
            }
            Err(FileError::Lost) => Err(Stop::cancelled()),
            Err(FileError::Artifact(away @ ArtifactError::Unavailable(_))) => {
                Err(Stop::retryable(away))
            }
            Err(FileError::Artifact(error)) => Err(error.into()),
            Err(FileError::Store(error)) => Err(error.into()),
        }
    }
}

/// The right to call a provider once.
#[derive(Debug)]
pub struct Permit {
    key: String,
}

impl Permit {
    /// The key that it was asked for with.
    pub fn key(&self) -> &str {
        &self.key
    }
}
