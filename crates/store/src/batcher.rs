//! Group commit for single submits: callers that arrive while a commit is under way share the next one.
//!
//! Nobody waits for company. A lone caller's task is written at once, by the caller itself; a group is whoever came
//! meanwhile, and its commit is a task of the runtime's. A caller whose future rests or goes away holds up nobody.
//! When a batch is refused as a whole, its members are submitted one by one, so that each hears its own answer.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use longhaul_domain::{NewTask, StoreError, bounds, contract::store::Submitted};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::{database::Database, submitter};

/// Callers that may wait for a commit; the next one waits for a place.
const WAITING: usize = 4_096;
/// Tasks in one shared commit.
const SHARED: usize = bounds::SUBMIT_BATCH / 10;
/// Bytes of parameters in one shared commit, so that large tasks do not pile up in one statement.
const SHARED_BYTES: usize = 4 * 1024 * 1024;

type Answer = Result<Submitted, StoreError>;

struct Waiting {
    task: NewTask,
    answer: oneshot::Sender<Answer>,
}

/// The way in for single submits.
#[derive(Debug, Clone)]
pub(crate) struct Batcher {
    database: Database,
    /// Callers that wait for an answer.
    callers: Arc<AtomicUsize>,
    sender: mpsc::Sender<Waiting>,
}

impl Batcher {
    /// Starts the task that forms groups. It ends when the last batcher is dropped.
    pub(crate) fn start(database: Database) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        let places = Arc::new(Semaphore::new(database.commits_at_once()));
        tokio::spawn(commit_in_groups(database.clone(), places, receiver));
        Self {
            database,
            callers: Arc::default(),
            sender,
        }
    }

    pub(crate) async fn submit(&self, task: NewTask) -> Answer {
        let caller = Caller::new(&self.callers);
        if caller.is_alone {
            return Ok(submitter::submit(&self.database, vec![task]).await?[0]);
        }
        let (answer, answered) = oneshot::channel();
        let gone = || StoreError::Unavailable("the store is closed".to_owned());
        self.sender
            .send(Waiting { task, answer })
            .await
            .map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

/// Somebody who waits for an answer.
struct Caller<'a> {
    callers: &'a AtomicUsize,
    /// Whether nobody else waited when this one came.
    is_alone: bool,
}

impl<'a> Caller<'a> {
    fn new(callers: &'a AtomicUsize) -> Self {
        Self {
            callers,
            is_alone: callers.fetch_add(1, Ordering::AcqRel) == 0,
        }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.callers.fetch_sub(1, Ordering::AcqRel);
    }
}

fn is_about_one_task(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Invalid(_)
            | StoreError::IdempotencyMismatch
            | StoreError::Refused(_)
            | StoreError::NotFound
    )
}

async fn commit_in_groups(
    database: Database,
    places: Arc<Semaphore>,
    mut receiver: mpsc::Receiver<Waiting>,
) {
    while let Some(first) = receiver.recv().await {
        // While all places are taken, the next group grows.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let mut bytes = first.task.parameters.as_str().len();
        let mut group = vec![first];
        while group.len() < SHARED && bytes < SHARED_BYTES {
            let Ok(next) = receiver.try_recv() else { break };
            bytes += next.task.parameters.as_str().len();
            group.push(next);
        }
        let database = database.clone();
        tokio::spawn(async move {
            commit(&database, group).await;
            drop(place);
        });
    }
}

async fn commit(database: &Database, group: Vec<Waiting>) {
    let (tasks, answers): (Vec<NewTask>, Vec<_>) =
        group.into_iter().map(|one| (one.task, one.answer)).unzip();
    // Kept in case they must be submitted one by one.
    let alone = (tasks.len() > 1).then(|| tasks.clone());
    match (submitter::submit(database, tasks).await, alone) {
        (Ok(submitted), _) => {
            for (answer, told) in answers.into_iter().zip(submitted) {
                // A caller that went away does not need its answer; its task stands.
                let _ = answer.send(Ok(told));
            }
        }
        // Only what a task itself is refused for may differ between the members of a group. After anything else the
        // outcome may be unknown, and to submit again could make a second task.
        (Err(error), Some(tasks)) if is_about_one_task(&error) => {
            for (task, answer) in tasks.into_iter().zip(answers) {
                let told = submitter::submit(database, vec![task]).await;
                let _ = answer.send(told.map(|submitted| submitted[0]));
            }
        }
        (Err(error), _) => {
            for answer in answers {
                let _ = answer.send(Err(error.clone()));
            }
        }
    }
}
