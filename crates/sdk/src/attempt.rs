//! The seam between a handler and the node that runs it.
//!
//! A handler reaches its node only through [`AttemptServices`]. It may therefore run on another
//! thread, or in another process in another language.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::{
    Json, Lease, LogLevel, StoreError, TaskInfo, TaskRecord,
    contract::{rate_limiter::Reservation, store::AttemptEnd},
};
use longhaul_engine::{files::StoredFile, trace::TraceContext};
use parking_lot::Mutex;

use crate::{
    children::Children, client::Client, progress::Progress, registry::TypeInfo, stop::Stop,
    stop_reason::StopReason,
};
use futures::future::BoxFuture;

/// The code of one task type, whatever it is written in.
#[async_trait]
pub trait Handler: Send + Sync {
    /// The type's name, settings and schemas.
    fn info(&self) -> &TypeInfo;

    /// Runs one attempt and says how it ended.
    ///
    /// The node drops the future when the attempt times out, or when the handler ignores a request
    /// to stop for too long.
    async fn run(&self, attempt: AttemptContext) -> AttemptEnd;

    /// Calls one of the type's hooks. Most handlers have none.
    fn hook(&self, hook: Hook, task: Arc<TaskInfo>) -> BoxFuture<'static, ()> {
        let _ = (hook, task);
        Box::pin(async {})
    }
}

impl fmt::Debug for dyn Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.info().name)
    }
}

/// What happened to a task, for the hooks of its type.
#[derive(Debug, Clone)]
pub enum Hook {
    /// This process submitted the task.
    Queued,
    /// An attempt has started.
    Running,
    /// An attempt completed the task.
    Completed,
    /// An attempt failed.
    Failed {
        /// The message of the failure.
        error: String,
        /// Whether the task has no attempt left.
        is_last: bool,
    },
    /// The task was cancelled.
    Cancelled,
}

/// What a running attempt can ask of its node. Every write carries the attempt's lease.
#[async_trait]
pub trait AttemptServices: fmt::Debug + Send + Sync {
    /// The task as it was claimed.
    fn task(&self) -> &TaskRecord;
    /// The task as hooks and answers see it.
    fn info(&self) -> &Arc<TaskInfo>;
    /// The lease of this attempt. Children name it as their parent.
    fn lease(&self) -> Lease;
    /// The settings of the task's type.
    fn type_info(&self) -> &TypeInfo;
    /// What this process submits children with.
    fn client(&self) -> &Arc<Client>;
    /// The trace that children of this attempt continue.
    fn trace_context(&self) -> Option<TraceContext>;

    /// Why the handler should stop, if it should.
    fn stop_reason(&self) -> Option<StopReason>;
    /// The error with which a handler leaves when it should stop, or when its attempt is over.
    fn check(&self) -> Result<(), Stop>;
    /// Returns when the handler should stop, or when its attempt is over.
    async fn stopped(&self);

    /// Publishes progress now and stores it within a few seconds. `json` is the same progress as
    /// the store takes it.
    fn report_progress(&self, progress: &Progress, json: Json) -> Result<(), Stop>;
    /// Stores a log line with the task, and writes it to the log of the process.
    fn log(&self, level: LogLevel, message: String);

    /// Notes the newest checkpoint. It is stored by [`Self::save_checkpoint`], or when the attempt
    /// ends and the task has another one.
    fn set_checkpoint(&self, checkpoint: Json) -> Result<(), Stop>;
    /// Stores the newest checkpoint, unless the store has it already.
    async fn save_checkpoint(&self) -> Result<(), Stop>;

    /// The children of this task.
    async fn children(&self) -> Result<Children, StoreError>;
    /// Asks a question of the process and returns its answer.
    async fn ask(&self, question: &str, value: Json) -> Result<Json, Stop>;
    /// Reserves a permit of a rate limit, or says when to try again.
    async fn reserve_permit(&self, key: &str) -> Result<Reservation, Stop>;
    /// Names the rate limit that this attempt used last. When a provider refuses a call, that limit
    /// is the one that is parked.
    fn note_limit(&self, key: &str);

    /// Appends to the task's output stream and returns the number of the entry.
    async fn emit(&self, text: &str) -> Result<u64, Stop>;
    /// Continues the output of an earlier attempt after the entry of this number.
    async fn resume_output(&self, number: u64) -> Result<(), Stop>;
    /// Stores a file that the task made.
    async fn store_artifact(
        &self,
        file_name: &str,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<StoredFile, Stop>;
    /// The URL of the first file that this attempt stored.
    fn result_url(&self) -> Option<String>;
}

/// One running attempt. Clones are the same attempt.
#[derive(Debug, Clone)]
pub struct AttemptContext {
    services: Arc<dyn AttemptServices>,
    child_numbers: Arc<ChildNumbers>,
}

impl AttemptContext {
    /// The context that a node gives to a handler.
    pub fn new(services: Arc<dyn AttemptServices>) -> Self {
        Self {
            services,
            child_numbers: Arc::default(),
        }
    }

    pub(crate) fn child_numbers(&self) -> &Arc<ChildNumbers> {
        &self.child_numbers
    }
}

impl Deref for AttemptContext {
    type Target = dyn AttemptServices;

    fn deref(&self) -> &Self::Target {
        &*self.services
    }
}

/// Numbers the equal children of one attempt, by the digest of their type and parameters. A later
/// attempt that submits the same children numbers them the same way.
#[derive(Debug, Default)]
pub(crate) struct ChildNumbers {
    /// A number is taken and counted under one lock, so that concurrent submits get different ones.
    by_digest: Mutex<HashMap<[u8; 32], EqualChildren>>,
}

#[derive(Debug, Default)]
struct EqualChildren {
    count: u64,
    /// Numbers of children that may not have been submitted. They are used again first.
    returned: BTreeSet<u64>,
}

impl ChildNumbers {
    /// The number of the next child of this digest, from 0.
    pub(crate) fn take(&self, digest: [u8; 32]) -> u64 {
        let mut by_digest = self.by_digest.lock();
        let equal = by_digest.entry(digest).or_default();

        equal.returned.pop_first().unwrap_or_else(|| {
            equal.count += 1;
            equal.count - 1
        })
    }

    /// Returns a number whose child may not have been submitted. The next equal child gets it.
    pub(crate) fn give_back(&self, digest: [u8; 32], number: u64) {
        let mut by_digest = self.by_digest.lock();
        by_digest.entry(digest).or_default().returned.insert(number);
    }
}
