//! Group commit for single submits. Callers that arrive during a commit share the next one.
//!
//! A submit never waits for a group to fill. A lone caller writes its task itself, at once. Callers
//! that arrive later form a group, which a spawned task commits. A caller that is not polled, or is
//! dropped, therefore delays no other. If a batch is refused, its tasks are submitted one by one,
//! and each caller gets its own answer.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Instant;

use longhaul_domain::{NewTask, StoreError, bounds, contract::store::Submitted};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::{database::Database, submitter};

/// How many callers the queue holds. Further callers wait for space.
const WAITING: usize = 4_096;
/// The most tasks in one shared commit.
const SHARED: usize = bounds::SUBMIT_BATCH / 10;
/// About the most parameter bytes in one shared commit. It keeps statements small.
const SHARED_BYTES: usize = 4 * 1024 * 1024;

type Answer = Result<Submitted, StoreError>;

struct Waiting {
    task: NewTask,
    /// Until when the submit is retried.
    deadline: Instant,
    answer: oneshot::Sender<Answer>,
}

/// Batches single submits.
#[derive(Debug, Clone)]
pub(crate) struct SubmitBatcher {
    database: Database,
    /// The number of callers without an answer.
    callers: Arc<AtomicUsize>,
    sender: mpsc::Sender<Waiting>,
}

impl SubmitBatcher {
    /// Starts the task that forms groups. It ends when the last batcher is dropped.
    pub(crate) fn start(database: Database) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        let places = Arc::new(Semaphore::new(database.commits_at_once()));

        // A task of its own, so that no caller's future holds up the groups.
        tokio::spawn(commit_in_groups(database.clone(), places, receiver));
        Self {
            database,
            callers: Arc::default(),
            sender,
        }
    }

    pub(crate) async fn submit(&self, task: NewTask) -> Answer {
        let caller = Caller::new(&self.callers);
        let deadline = self.database.deadline();
        if caller.is_alone {
            return Ok(submitter::submit(&self.database, deadline, vec![task]).await?[0]);
        }

        let (answer, answered) = oneshot::channel();
        let gone = || StoreError::Unavailable("the store is closed".to_owned());
        self.sender
            .send(Waiting {
                task,
                deadline,
                answer,
            })
            .await
            .map_err(|_| gone())?;

        answered.await.map_err(|_| gone())?
    }
}

/// Counts a caller until it has its answer.
struct Caller<'a> {
    callers: &'a AtomicUsize,
    /// Whether no other caller was waiting on arrival.
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
    let failure = Arc::new(Mutex::new(None));
    while let Some(first) = receiver.recv().await {
        // The next group grows while all places are taken.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };

        // The deadline has passed while earlier groups were retried, so this one would fail as they
        // did. The lock is held for the read alone.
        let last_failure = failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(error) = last_failure
            && !database.has_time(first.deadline)
        {
            let _ = first.answer.send(Err(error));
            continue;
        }

        let mut bytes = first.task.parameters.as_str().len();
        let mut group = vec![first];
        while group.len() < SHARED && bytes < SHARED_BYTES {
            let Ok(next) = receiver.try_recv() else { break };
            bytes += next.task.parameters.as_str().len();
            group.push(next);
        }

        // Spawned, so that the next group can form during this commit.
        let database = database.clone();
        let failure = Arc::clone(&failure);
        tokio::spawn(async move {
            let failed = commit(&database, group).await.err();
            // Before the place is free, so that the next group finds it. The lock is held for the
            // assignment alone.
            *failure.lock().unwrap_or_else(PoisonError::into_inner) = failed;
            drop(place);
        });
    }
}

/// Commits the group and answers its callers. Fails if the whole group failed.
async fn commit(database: &Database, group: Vec<Waiting>) -> Result<(), StoreError> {
    // The first caller has waited longest.
    let deadline = group
        .first()
        .map_or_else(|| database.deadline(), |first| first.deadline);
    let (tasks, answers): (Vec<NewTask>, Vec<_>) =
        group.into_iter().map(|one| (one.task, one.answer)).unzip();

    // A copy, in case the tasks must be submitted one by one.
    let alone = (tasks.len() > 1).then(|| tasks.clone());
    match (submitter::submit(database, deadline, tasks).await, alone) {
        (Ok(submitted), _) => {
            for (answer, told) in answers.into_iter().zip(submitted) {
                // The caller may have gone; its task is stored all the same.
                let _ = answer.send(Ok(told));
            }
        }
        // The error concerns one task, so the others may succeed. After other errors the outcome
        // may be unknown, and a second submit could create a second task.
        (Err(error), Some(tasks)) if is_about_one_task(&error) => {
            for (task, answer) in tasks.into_iter().zip(answers) {
                let told = submitter::submit(database, deadline, vec![task]).await;
                let _ = answer.send(told.map(|submitted| submitted[0]));
            }
        }
        (Err(error), _) => {
            for answer in answers {
                let _ = answer.send(Err(error.clone()));
            }
            return Err(error);
        }
    }

    Ok(())
}
