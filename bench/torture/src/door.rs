//! What the client asks of Longhaul, and the ways in.
//!
//! On a server the client has connections of its own, in the conductor's process. The embedded store has one process,
//! so there the client's requests go through a pipe into the node, which answers the same requests with the same
//! code; when the node dies, the answers that were under way are lost, as they are with a broken connection. A fleet is
//! asked over HTTP, one API node after the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul::{Longhaul, Status, StoreError, Task, TaskId};
use longhaul_domain::{NodeId, statistics::TallyFilter};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::{
    http_door::HttpDoor,
    plan::{Item, Kind},
    settings::RETRY,
    tasks::{Echo, Fan, Fatal, Flaky, Patient, Sleep, Steps},
};

/// How long the client waits for an answer. Then it knows nothing, and asks again.
const PATIENCE: Duration = Duration::from_secs(4);
/// Whose tasks they are.
pub(crate) const OWNER: &str = "torture";
/// Requests that may lie in a node's pipe.
const PIPE: usize = 1_024;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Request {
    Submit(Box<Item>),
    Cancel(Uuid),
    Read(Uuid),
    /// How many tasks have not ended.
    CountOpen,
    /// Declares the living node dead, as a process that took over the file would.
    Disown,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Submitted(Uuid),
    Cancelled(Status),
    /// It was taken; what became of the task is for reads to tell.
    CancelTaken,
    Read {
        status: Status,
        attempt: u32,
        version: u64,
    },
    NotFound,
    Open(i64),
    Done,
    /// Nobody knows whether it was done.
    Unknown(String),
    /// It was not done, for a reason that the plan does not know.
    Refused(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Numbered<T> {
    pub(crate) number: u64,
    pub(crate) what: T,
}

/// A way in.
#[derive(Debug, Clone)]
pub(crate) enum Door {
    Direct(Arc<Longhaul>),
    Piped(Arc<Pipe>),
    Http(Arc<HttpDoor>),
}

impl Door {
    pub(crate) async fn ask(&self, request: Request) -> Answer {
        let answer = async {
            match self {
                Self::Direct(longhaul) => answer(longhaul, request).await,
                Self::Piped(pipe) => pipe.ask(request).await,
                Self::Http(door) => door.ask(request).await,
            }
        };
        let late = |_| Answer::Unknown("no answer in time".to_owned());
        tokio::time::timeout(PATIENCE, answer)
            .await
            .unwrap_or_else(late)
    }
}

/// Does what is asked.
pub(crate) async fn answer(longhaul: &Longhaul, request: Request) -> Answer {
    let answered = match request {
        Request::Submit(item) => submit(longhaul, *item)
            .await
            .map(|id| Answer::Submitted(id.0)),
        Request::Cancel(id) => longhaul.cancel(TaskId(id)).await.map(Answer::Cancelled),
        Request::Read(id) => longhaul.task(TaskId(id)).await.map(|task| Answer::Read {
            status: task.status,
            attempt: task.attempt,
            version: task.version,
        }),
        Request::CountOpen => count_open(longhaul).await.map(Answer::Open),
        Request::Disown => {
            let nobody = NodeId(Uuid::nil());
            longhaul
                .store()
                .declare_others_dead(nobody)
                .await
                .map(|()| Answer::Done)
        }
    };
    answered.unwrap_or_else(|error| match error {
        StoreError::NotFound => Answer::NotFound,
        StoreError::Unavailable(_) => Answer::Unknown(error.to_string()),
        StoreError::Invalid(_)
        | StoreError::Refused(_)
        | StoreError::IdempotencyMismatch
        | StoreError::NodeLost
        | StoreError::SchemaTooNew { .. }
        | StoreError::Internal(_) => Answer::Refused(error.to_string()),
    })
}

async fn submit(longhaul: &Longhaul, item: Item) -> Result<TaskId, StoreError> {
    match item.kind {
        Kind::Echo => submit_as::<Echo>(longhaul, item).await,
        Kind::Sleep => submit_as::<Sleep>(longhaul, item).await,
        Kind::Flaky => submit_as::<Flaky>(longhaul, item).await,
        Kind::Fatal => submit_as::<Fatal>(longhaul, item).await,
        Kind::Steps => submit_as::<Steps>(longhaul, item).await,
        Kind::Fan => submit_as::<Fan>(longhaul, item).await,
        Kind::Patient => submit_as::<Patient>(longhaul, item).await,
    }
}

async fn submit_as<T: Task<Params = crate::tasks::Work>>(
    longhaul: &Longhaul,
    item: Item,
) -> Result<TaskId, StoreError> {
    let key = item.key();
    let submission = longhaul
        .submit::<T>(item.work)
        .owner(OWNER)
        .idempotency_key(&key)
        .priority(item.priority);
    let submission = submission.max_attempts(item.max_attempts).retry(RETRY);
    let submission = match item.delay_ms {
        0 => submission,
        ms => submission.delay(Duration::from_millis(ms)),
    };
    Ok(submission.await?.id())
}

async fn count_open(longhaul: &Longhaul) -> Result<i64, StoreError> {
    let tallies = longhaul
        .store()
        .read_tallies(&TallyFilter { spans: None })
        .await?;
    let is_open = |label: &str| Status::parse(label).is_some_and(|status| !status.is_ended());
    Ok(tallies
        .iter()
        .filter(|tally| is_open(&tally.key.label))
        .map(|tally| tally.n)
        .sum())
}

/// The pipe into whichever process the node has now.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    calls: Mutex<Option<Calls>>,
}

#[derive(Debug)]
struct Calls {
    next: u64,
    lines: mpsc::Sender<String>,
    waiting: Arc<Waiting>,
}

type Waiting = Mutex<HashMap<u64, oneshot::Sender<Answer>>>;

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pipe {
    /// Connects to a new process. Whoever waits for an answer of the one before learns that none will come.
    pub(crate) fn attach(&self, stdin: ChildStdin, stdout: ChildStdout) {
        let (lines, to_write) = mpsc::channel(PIPE);
        let waiting = Arc::new(Waiting::default());
        tokio::spawn(write_lines(stdin, to_write));
        tokio::spawn(read_answers(stdout, Arc::clone(&waiting)));
        *locked(&self.calls) = Some(Calls {
            next: 0,
            lines,
            waiting,
        });
    }

    /// Closes the pipe, which tells the process to stop.
    pub(crate) fn detach(&self) {
        *locked(&self.calls) = None;
    }

    async fn ask(&self, request: Request) -> Answer {
        let Some((lines, line, answered)) = self.call(request) else {
            return Answer::Unknown("the node is not there".to_owned());
        };
        if lines.send(line).await.is_err() {
            return Answer::Unknown("the node's pipe is broken".to_owned());
        }
        answered
            .await
            .unwrap_or_else(|_| Answer::Unknown("the node died before it answered".to_owned()))
    }

    fn call(
        &self,
        request: Request,
    ) -> Option<(mpsc::Sender<String>, String, oneshot::Receiver<Answer>)> {
        let mut calls = locked(&self.calls);
        let calls = calls.as_mut()?;
        calls.next += 1;
        let line = serde_json::to_string(&Numbered {
            number: calls.next,
            what: request,
        })
        .ok()?;
        let (answer, answered) = oneshot::channel();
        locked(&calls.waiting).insert(calls.next, answer);
        Some((calls.lines.clone(), line, answered))
    }
}

async fn write_lines(mut stdin: ChildStdin, mut lines: mpsc::Receiver<String>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        if stdin.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read_answers(stdout: ChildStdout, waiting: Arc<Waiting>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(Numbered { number, what }) = serde_json::from_str::<Numbered<Answer>>(&line)
            && let Some(answer) = locked(&waiting).remove(&number)
        {
            // Whoever has given up waiting has written down that it does not know.
            let _ = answer.send(what);
        }
    }
    locked(&waiting).clear();
}
