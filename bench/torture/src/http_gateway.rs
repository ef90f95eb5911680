//! Requests to a fleet: over the HTTP API of its nodes, one after the other.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use longhaul::{Longhaul, TaskId};
use longhaul_api::{
    client::{Client, ClientError, Identity},
    duration::WireDuration,
    submit::SubmitRequest,
};
use serde_json::value::to_raw_value;

use crate::{
    gateway::{self, Answer, OWNER, Request},
    plan::{Item, Kind},
};

#[derive(Debug)]
pub(crate) struct HttpGateway {
    clients: Vec<Client>,
    next: AtomicUsize,
    /// Counts tasks directly in the database, which no fault of the network affects.
    counter: Arc<Longhaul>,
}

impl HttpGateway {
    pub(crate) fn new(ports: &[u16], counter: Arc<Longhaul>) -> anyhow::Result<Self> {
        let identity = Identity {
            token: None,
            user: Some(OWNER.to_owned()),
        };
        let client =
            |port: &u16| Client::new(&format!("http://127.0.0.1:{port}"), identity.clone());
        let clients = ports.iter().map(client).collect::<Result<_, _>>()?;

        Ok(Self {
            clients,
            next: AtomicUsize::new(0),
            counter,
        })
    }

    pub(crate) async fn ask(&self, request: Request) -> Answer {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(client) = self.clients.get(number % self.clients.len().max(1)) else {
            return Answer::Refused("the fleet has no API node".to_owned());
        };

        let answered = match request {
            Request::Submit(item) => submit(client, &item).await,
            Request::Cancel(id) => client
                .cancel(TaskId(id))
                .await
                .map(|()| Answer::CancelTaken),
            Request::Read(id) => client.get(TaskId(id)).await.map(|answer| {
                let task = answer.value.summary;
                Answer::Read {
                    status: task.status,
                    attempt: task.attempt,
                    version: task.version,
                }
            }),
            Request::CountOpen | Request::DeclareDead => {
                return gateway::answer(&self.counter, request).await;
            }
        };

        answered.unwrap_or_else(|error| {
            if matches!(&error, ClientError::Refused(problem) if problem.status == 404) {
                Answer::NotFound
            } else if error.is_transient() {
                Answer::Unknown(error.to_string())
            } else {
                Answer::Refused(error.to_string())
            }
        })
    }
}

async fn submit(client: &Client, item: &Item) -> Result<Answer, ClientError> {
    let parameters =
        to_raw_value(&item.work).map_err(|error| ClientError::Unsendable(error.to_string()))?;
    let request = SubmitRequest {
        task_type: type_of(item.kind).to_owned(),
        parameters: Some(parameters),
        priority: Some(item.priority),
        run_at: None,
        delay: (item.delay_ms > 0).then(|| WireDuration(Duration::from_millis(item.delay_ms))),
        queue: None,
        tier: None,
        expected_duration: None,
        max_attempts: Some(item.max_attempts),
        timeout: None,
        task_key: None,
        correlation_id: None,
    };

    let answer = client.submit(&request, Some(&item.key())).await?;
    Ok(Answer::Submitted(answer.value.task_id.0))
}

const fn type_of(kind: Kind) -> &'static str {
    use crate::tasks::{Echo, Fan, Fatal, Flaky, Patient, Sleep, Steps};
    use longhaul::Task;

    match kind {
        Kind::Echo => Echo::TYPE,
        Kind::Sleep => Sleep::TYPE,
        Kind::Flaky => Flaky::TYPE,
        Kind::Fatal => Fatal::TYPE,
        Kind::Steps => Steps::TYPE,
        Kind::Fan => Fan::TYPE,
        Kind::Patient => Patient::TYPE,
    }
}
