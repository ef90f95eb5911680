//! The client's requests to Longhaul, and the ways to send them.
//!
//! On a server the client has its own connections. The embedded store allows one process, so there
//! the requests go through a pipe to the node, which answers them with the same code. When the node
//! dies, pending answers are lost, as with a broken connection. A fleet is asked over HTTP, one API
//! node after the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul::{Longhaul, Status, StoreError, Task, TaskId};
use longhaul_domain::{NodeId, statistics::CountFilter};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::{
    http_gateway::HttpGateway,
    plan::{Item, Kind},
    settings::RETRY,
    tasks::{Echo, Fan, Fatal, Flaky, Patient, Sleep, Steps},
};

/// How long the client waits for an answer. After that the result is unknown.
const DEADLINE: Duration = Duration::from_secs(4);
/// The owner of all tasks.
pub(crate) const OWNER: &str = "torture";
/// The most requests waiting for a node's pipe.
const PIPE_CAPACITY: usize = 1_024;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Request {
    Submit(Box<Item>),
    Cancel(Uuid),
    Read(Uuid),
    /// How many tasks have not ended.
    CountOpen,
    /// Declares the running node dead, as a process that takes over the file does.
    DeclareDead,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Submitted(Uuid),
    Cancelled(Status),
    /// The cancel was accepted. Its effect shows in reads.
    CancelTaken,
    Read {
        status: Status,
        attempt: u32,
        version: u64,
    },
    NotFound,
    Open(i64),
    Done,
    /// The request may or may not have been executed.
    Unknown(String),
    /// The request was refused for a reason that the plan does not expect.
    Refused(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Numbered<T> {
    pub(crate) number: u64,
    pub(crate) what: T,
}

/// A way to send requests.
#[derive(Debug, Clone)]
pub(crate) enum Gateway {
    Direct(Arc<Longhaul>),
    Piped(Arc<Pipe>),
    Http(Arc<HttpGateway>),
}

impl Gateway {
    pub(crate) async fn ask(&self, request: Request) -> Answer {
        let answer = async {
            match self {
                Self::Direct(longhaul) => answer(longhaul, request).await,
                Self::Piped(pipe) => pipe.ask(request).await,
                Self::Http(gateway) => gateway.ask(request).await,
            }
        };

        let late = |_| Answer::Unknown("no answer in time".to_owned());
        let answered = tokio::time::timeout(DEADLINE, answer).await;
        answered.unwrap_or_else(late)
    }
}

/// Executes a request.
pub(crate) async fn answer(longhaul: &Longhaul, request: Request) -> Answer {
    let answered = match request {
        Request::Submit(item) => {
            let submitted = submit(longhaul, *item).await;
            submitted.map(|id| Answer::Submitted(id.0))
        }
        Request::Cancel(id) => longhaul.cancel(TaskId(id)).await.map(Answer::Cancelled),
        Request::Read(id) => longhaul.task(TaskId(id)).await.map(|task| Answer::Read {
            status: task.status,
            attempt: task.attempt,
            version: task.version,
        }),
        Request::CountOpen => count_open(longhaul).await.map(Answer::Open),
        Request::DeclareDead => {
            let no_node = NodeId(Uuid::nil());
            let declared = longhaul
                .engine()
                .leases()
                .declare_others_dead(no_node)
                .await;
            declared.map(|()| Answer::Done)
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
    let filter = CountFilter { spans: None };
    let counts = longhaul.engine().reads().read_task_counts(&filter).await?;

    let is_open = |label: &str| Status::parse(label).is_some_and(|status| !status.is_ended());
    let open = counts.iter().filter(|count| is_open(&count.key.label));
    Ok(open.map(|count| count.n).sum())
}

/// The pipe to the node's current process.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    calls: Mutex<Option<Connection>>,
}

#[derive(Debug)]
struct Connection {
    next: u64,
    requests: mpsc::Sender<String>,
    waiting: Arc<Waiting>,
}

type Waiting = Mutex<HashMap<u64, oneshot::Sender<Answer>>>;

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Held for one look or change, never across an await.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pipe {
    /// Connects to a new process. Requests that wait for the previous process get `Unknown`.
    pub(crate) fn attach(&self, stdin: ChildStdin, stdout: ChildStdout) {
        let (requests, to_write) = mpsc::channel(PIPE_CAPACITY);
        let waiting = Arc::new(Waiting::default());

        // Both end with the process. The reader then drops the waiting senders.
        tokio::spawn(write_requests(stdin, to_write));
        tokio::spawn(read_answers(stdout, Arc::clone(&waiting)));
        *locked(&self.calls) = Some(Connection {
            next: 0,
            requests,
            waiting,
        });
    }

    /// Closes the pipe, which makes the process stop.
    pub(crate) fn detach(&self) {
        *locked(&self.calls) = None;
    }

    async fn ask(&self, request: Request) -> Answer {
        let Some((requests, line, answered)) = self.call(request) else {
            return Answer::Unknown("the node is down".to_owned());
        };
        if requests.send(line).await.is_err() {
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
        // The lock covers number and entry, so that an answer always finds its sender.
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

        Some((calls.requests.clone(), line, answered))
    }
}

async fn write_requests(mut stdin: ChildStdin, mut requests: mpsc::Receiver<String>) {
    while let Some(mut line) = requests.recv().await {
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
            // The client may have stopped waiting and recorded an unknown answer.
            let _ = answer.send(what);
        }
    }

    locked(&waiting).clear();
}
