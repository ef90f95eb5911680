//! Everything that a handler can ask for while it runs.

use std::time::Duration;

use longhaul_domain::{
    Invalid, Json, LogLevel, TaskId, TaskRecord, contract::rate_limiter::Reservation,
};
use longhaul_engine::files::StoredFile;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    attempt::AttemptContext,
    kind::Named,
    progress::Progress,
    question::{Question, ask},
    state::State,
    stop::Stop,
    stop_reason::StopReason,
    submission::{Submission, submit_children},
    task::Task,
};

/// One attempt, as its handler sees it. Clones are the same attempt.
#[derive(Debug, Clone)]
pub struct Job(AttemptContext);

impl Job {
    /// The attempt as a handler in Rust sees it.
    pub const fn new(attempt: AttemptContext) -> Self {
        Self(attempt)
    }

    pub(crate) const fn context(&self) -> &AttemptContext {
        &self.0
    }

    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.task().id
    }

    /// The owner of the task.
    pub fn owner(&self) -> &str {
        &self.task().owner
    }

    /// The number of the attempt, from 1. It fences everything that this attempt writes.
    pub fn attempt(&self) -> u32 {
        self.task().attempt
    }

    /// The task that submitted this one, if one did.
    pub fn parent(&self) -> Option<TaskId> {
        self.task().parent_id
    }

    /// The queue that the task was claimed from.
    pub fn queue(&self) -> &str {
        &self.task().queue
    }

    /// The id that ties the task to a request of its submitter. Children inherit it.
    pub fn correlation_id(&self) -> Option<&str> {
        self.task().correlation_id.as_deref()
    }

    /// The record as it was claimed.
    pub fn task(&self) -> &TaskRecord {
        self.0.task()
    }

    // Stopping.

    /// Whether the handler should stop. The task was cancelled, another attempt took over, the node
    /// shuts down, or the attempt is over: it has passed its timeout, or its handler has returned
    /// and something that the handler started still runs.
    pub fn is_cancelled(&self) -> bool {
        self.check().is_err()
    }

    /// Why the handler should stop, if it should. `None` when the attempt is over.
    ///
    /// Undo work (give money back, delete half a file) only on a cancel. After a shutdown the task
    /// continues on another node.
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

    /// Sleeps, and leaves with `?` when the handler should stop in the meantime.
    pub async fn sleep(&self, duration: Duration) -> Result<(), Stop> {
        // A sleep that is dropped loses nothing.
        tokio::select! {
            () = tokio::time::sleep(duration) => Ok(()),
            () = self.cancelled() => self.check(),
        }
    }

    // Progress and log lines.

    /// Reports progress: a percentage, or a [`Progress`]. Listeners see it at once. It is stored
    /// every few seconds.
    pub async fn progress(&self, progress: impl Into<Progress>) -> Result<(), Stop> {
        self.check()?;
        let progress = progress.into();
        let json = Json::from_value("progress", &progress)
            .map_err(|error| Stop::invalid("invalid_progress", error))?;

        self.0.report_progress(&progress, json)
    }

    /// Stores a log line with the task.
    pub fn info(&self, message: impl Into<String>) {
        self.0.log(LogLevel::Info, message.into());
    }

    /// Like [`Self::info`], for what needs attention.
    pub fn warn(&self, message: impl Into<String>) {
        self.0.log(LogLevel::Warn, message.into());
    }

    /// Like [`Self::info`], for what went wrong.
    pub fn error(&self, message: impl Into<String>) {
        self.0.log(LogLevel::Error, message.into());
    }

    // Checkpoints.

    /// The checkpoint that an earlier attempt saved.
    pub fn checkpoint<S: DeserializeOwned>(&self) -> Result<Option<S>, Stop> {
        let saved = self.task().checkpoint.as_ref().map(Json::read).transpose();
        saved.map_err(|error| {
            let problem = format!("does not fit: {error}");
            let allowed = "what the handler reads; `#[serde(default)]` on fields added since";
            Stop::invalid(
                "invalid_checkpoint",
                Invalid::new("checkpoint", problem, allowed),
            )
        })
    }

    /// Saves a checkpoint now. When this returns, the next attempt starts from it.
    pub async fn save_checkpoint(&self, state: &impl Serialize) -> Result<(), Stop> {
        self.0.set_checkpoint(checkpoint_json(state)?)?;
        self.0.save_checkpoint().await
    }

    /// The state of a long handler: the one that an earlier attempt saved, or the default. It is
    /// saved at the type's interval, at a shutdown, and whenever [`State::save`] is called.
    pub fn state<S>(&self) -> Result<State<S>, Stop>
    where
        S: Serialize + DeserializeOwned + Default + Send + 'static,
    {
        let saved = self.checkpoint()?.unwrap_or_default();
        Ok(State::start(self.clone(), saved))
    }

    // Children.

    /// A child to be submitted: `job.submit::<Page>(page).await?`. A later attempt that submits the
    /// same child again gets the same task.
    ///
    /// A child is identified by its type and parameters. Equal children are numbered within the
    /// attempt, so the order of different children does not matter. Children of the finish step are
    /// separate from those before it.
    ///
    /// A handler that submits equal children and may skip some of them because of its checkpoint
    /// gives each a key: `job.submit::<Page>(page).idempotency_key("round 2").await?`. Then the key
    /// alone identifies the child.
    pub fn submit<C: Task>(&self, params: C::Params) -> Submission<C> {
        Submission::child(&self.0, &params)
    }

    /// A child of a type that is known by its name:
    /// `job.submit_named::<_, String>("shout", text).await?`.
    pub fn submit_named<P, R>(&self, task_type: &str, params: P) -> Submission<Named<P, R>>
    where
        P: Serialize + 'static,
        R: DeserializeOwned + 'static,
    {
        Submission::named(self.0.client(), task_type, &params).below(&self.0)
    }

    /// Many children of one type, in order. A later attempt finds them again like those of
    /// [`Self::submit`].
    pub async fn submit_all<C: Task>(
        &self,
        params: impl IntoIterator<Item = C::Params>,
    ) -> Result<Vec<TaskId>, Stop> {
        self.check()?;
        submit_children::<C>(&self.0, params).await
    }

    // Questions.

    /// Asks this process a question and returns the answer of this moment:
    /// `job.ask(MayUse { picture }).await?`.
    /// [`Builder::answer`](../longhaul/struct.Builder.html#method.answer) registers who answers.
    ///
    /// An error of the answer ends the attempt as an error of the handler would. Without an answer
    /// within ten seconds the attempt is retried.
    pub async fn ask<Q: Question>(&self, question: Q) -> Result<Q::Answer, Stop> {
        self.check()?;
        // The answer to a dropped question may be lost: questions change nothing.
        tokio::select! {
            answer = ask(&*self.0, &question) => answer,
            () = self.cancelled() => Err(self.check().err().unwrap_or_else(Stop::cancelled)),
        }
    }

    // Rate limits.

    /// A permit to call a provider (`openai`, `openai/gpt-4`). Waits for it as long as the type
    /// allows. Then the task is put back for later, without using up a retry.
    pub async fn permit(&self, key: &str) -> Result<Permit, Stop> {
        self.check()?;
        match self.0.reserve_permit(key).await? {
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
                Err(Stop::limited(after, key))
            }
        }
    }

    // Output and files.

    /// Appends text to the task's output stream and returns the number of the entry. A new attempt
    /// starts the stream over, unless it has called [`Self::resume_output`].
    pub async fn emit(&self, text: &str) -> Result<u64, Stop> {
        self.check()?;
        self.0.emit(text).await
    }

    /// Continues the output of an earlier attempt after the entry of this number. Later entries are
    /// removed.
    pub async fn resume_output(&self, number: u64) -> Result<(), Stop> {
        self.check()?;
        self.0.resume_output(number).await
    }

    /// Stores a file that the task made. It becomes visible, and its URL works, once this attempt's
    /// result is accepted. The URL of the first file becomes the task's `resultUrl`.
    pub async fn store_artifact(
        &self,
        file_name: &str,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<StoredFile, Stop> {
        self.check()?;
        self.0.store_artifact(file_name, content_type, bytes).await
    }
}

/// A checkpoint as the store takes it.
pub(crate) fn checkpoint_json(state: &impl Serialize) -> Result<Json, Stop> {
    Json::from_value("checkpoint", state)
        .map_err(|error| Stop::invalid("invalid_checkpoint", error))
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
