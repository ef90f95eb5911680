//! Group commit for single submits: callers that arrive while a commit is under way share the next one.
//!
//! Nobody waits for company. A lone caller's task is written at once; the batch is whoever came meanwhile.
//! When a batch is refused as a whole, its members are submitted one by one, so that each hears its own answer.

use std::sync::Arc;

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
    sender: mpsc::Sender<Waiting>,
}

impl Batcher {
    /// Starts the one task that commits. It ends when the last batcher is dropped.
    pub(crate) fn start(database: Database) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        tokio::spawn(commit_in_groups(database, receiver));
        Self { sender }
    }

    pub(crate) async fn submit(&self, task: NewTask) -> Answer {
        let (answer, answered) = oneshot::channel();
        let gone = || StoreError::Unavailable("the store is closed".to_owned());
        self.sender.send(Waiting { task, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

fn is_about_one_task(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Invalid(_) | StoreError::IdempotencyMismatch | StoreError::Refused(_) | StoreError::NotFound
    )
}

async fn commit_in_groups(database: Database, mut receiver: mpsc::Receiver<Waiting>) {
    let places = Arc::new(Semaphore::new(database.commits_at_once()));
    while let Some(first) = receiver.recv().await {
        // While all places are taken, the next group grows.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
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
    let (tasks, answers): (Vec<NewTask>, Vec<_>) = group.into_iter().map(|one| (one.task, one.answer)).unzip();
    match submitter::submit(database, &tasks).await {
        Ok(submitted) => {
            for (answer, told) in answers.into_iter().zip(submitted) {
                // A caller that went away does not need its answer; its task stands.
                let _ = answer.send(Ok(told));
            }
        }
        // Only what a task itself is refused for may differ between the members of a group. After anything else the
        // outcome may be unknown, and to submit again could make a second task.
        Err(error) if !is_about_one_task(&error) || tasks.len() == 1 => {
            for answer in answers {
                let _ = answer.send(Err(error.clone()));
            }
        }
        Err(_) => {
            for (task, answer) in tasks.into_iter().zip(answers) {
                let told = submitter::submit(database, std::slice::from_ref(&task)).await;
                let _ = answer.send(told.map(|submitted| submitted[0]));
            }
        }
    }
}
