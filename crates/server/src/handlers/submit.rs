//! Submitting one task or many.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use longhaul_api::{BatchAnswer, BatchRequest, SubmitAnswer, SubmitRequest};
use longhaul_domain::{Idempotency, Json, NewTask, RunAt, Status, bounds};
use longhaul_engine::catalog::TaskRequest;
use sha2::{Digest as _, Sha256};

use super::check_queue;
use crate::{
    api::Api,
    body::JsonBody,
    identity::{Caller, LOWEST_TIER},
    observe::RequestIds,
    openapi::{Doc, header_parameter},
    problem::ApiError,
    reply,
};

/// How long an idempotency key is remembered, in milliseconds: 24 hours.
const KEY_TTL_MS: u64 = 24 * 3_600 * 1_000;
/// Tasks in one request.
const BATCH: usize = 1_000;
const KEY_HEADER: &str = "Idempotency-Key";
/// The prefix of the keys that Longhaul gives to children.
const CHILD_KEYS: &str = "child/";

pub(crate) fn one_doc() -> Doc {
    let key = header_parameter(
        KEY_HEADER,
        "for 24 hours the same key returns the same task; 422 with another body",
    );

    Doc::new("submitTask", "Submits a task")
        .parameters(vec![key])
        .body::<SubmitRequest>()
        .answer::<SubmitAnswer>(202, "The task is durable; Location is its URL")
        .problems(&[400, 413, 415, 422])
}

pub(crate) async fn one(
    State(api): State<Arc<Api>>,
    caller: Caller,
    ids: RequestIds,
    headers: HeaderMap,
    JsonBody(request): JsonBody<SubmitRequest>,
) -> Result<Response, ApiError> {
    let idempotency = match idempotency_key(&headers)? {
        Some(key) => Some(Idempotency {
            key,
            digest: digest([&request])?,
            ttl_ms: KEY_TTL_MS,
        }),
        None => None,
    };

    let task = new_task(&api, &caller, &ids, request, idempotency)?;
    let submitted = api.submissions.submit(task).await?;
    let answer = SubmitAnswer {
        task_id: submitted.task_id,
        status: Status::Queued,
    };
    let location = format!("/api/tasks/{}", submitted.task_id);
    Ok(reply::accepted(&location, &answer))
}

pub(crate) fn batch_doc() -> Doc {
    let key = header_parameter(
        KEY_HEADER,
        "for 24 hours the same key returns the same tasks; 422 with another body",
    );

    Doc::new("submitTasks", "Submits several tasks, all or none")
        .parameters(vec![key])
        .body::<BatchRequest>()
        .answer::<BatchAnswer>(
            202,
            "The tasks are durable; their ids are in the order of the request",
        )
        .problems(&[400, 413, 415, 422])
}

pub(crate) async fn batch(
    State(api): State<Arc<Api>>,
    caller: Caller,
    ids: RequestIds,
    headers: HeaderMap,
    JsonBody(request): JsonBody<BatchRequest>,
) -> Result<Response, ApiError> {
    let count = request.tasks.len();
    if !(1..=BATCH).contains(&count) {
        return Err(ApiError::invalid_field(
            "tasks",
            format!("has {count} items"),
            format!("1 to {BATCH}"),
        ));
    }

    let key = match idempotency_key(&headers)? {
        Some(key) => Some((key, digest(&request.tasks)?)),
        None => None,
    };
    let mut tasks = Vec::with_capacity(count);
    for (n, request) in request.tasks.into_iter().enumerate() {
        // Each task has its own key. The digest is that of the whole batch, so that a changed batch
        // is refused.
        let idempotency = key.as_ref().map(|(key, digest)| Idempotency {
            key: format!("{key}#{n}"),
            digest: *digest,
            ttl_ms: KEY_TTL_MS,
        });
        let task = new_task(&api, &caller, &ids, request, idempotency);
        tasks.push(task.map_err(|error| error.within(&format!("tasks[{n}]")))?);
    }

    let submitted = api.submissions.submit_many(tasks).await?;
    let task_ids = submitted.into_iter().map(|made| made.task_id).collect();
    Ok(reply::json(StatusCode::ACCEPTED, &BatchAnswer { task_ids }))
}

/// The task of a request, with valid parameters.
fn new_task(
    api: &Api,
    caller: &Caller,
    ids: &RequestIds,
    request: SubmitRequest,
    idempotency: Option<Idempotency>,
) -> Result<NewTask, ApiError> {
    let run_at = run_at(&request)?;
    check_queue(api, caller, request.queue.as_deref())?;
    let text = request
        .parameters
        .map_or_else(|| "null".to_owned(), |raw| raw.get().to_owned());

    let task = api.catalog.new_task(TaskRequest {
        owner: caller.owner.clone(),
        task_type: request.task_type,
        parameters: Json::parse("parameters", text)?,
        priority: request.priority,
        run_at,
        queue: request.queue,
        tier: tier(caller, request.tier)?,
        expected_duration: request.expected_duration.map(|duration| duration.0),
        max_attempts: request.max_attempts,
        timeout: request.timeout.map(|duration| duration.0),
        task_key: request.task_key,
        correlation_id: request
            .correlation_id
            .or_else(|| ids.correlation_id.clone()),
        trace_context: ids.trace.map(|trace| trace.to_string()),
        idempotency,
    })?;

    api.schemas.check(&task.task_type, &task.parameters)?;
    Ok(task)
}

fn run_at(request: &SubmitRequest) -> Result<RunAt, ApiError> {
    match (request.run_at, request.delay) {
        (None, None) => Ok(RunAt::Now),
        (Some(moment), None) => Ok(RunAt::At(moment.0)),
        (None, Some(delay)) => Ok(RunAt::AfterMs(delay.as_millis())),
        (Some(_), Some(_)) => {
            let problem = "is given beside runAt";
            Err(ApiError::invalid_field("delay", problem, "one of the two"))
        }
    }
}

/// The tier of the task: the caller's own, unless the caller may name any.
fn tier(caller: &Caller, asked: Option<String>) -> Result<Option<String>, ApiError> {
    match (&caller.tier, asked) {
        (None, asked) if caller.may_name_tiers() => Ok(asked),
        (None, None) => Ok(None),
        (None, Some(asked)) if asked == LOWEST_TIER => Ok(Some(asked)),
        (None, Some(asked)) => {
            let allowed = format!(
                "{LOWEST_TIER}, or none; another tier comes with the token \
                 (longhaul token create --tier)"
            );

            Err(ApiError::invalid_field(
                "tier",
                format!("is {asked:?}, and this caller has none"),
                allowed,
            ))
        }
        (Some(own), Some(asked)) if asked != *own => Err(ApiError::invalid_field(
            "tier",
            format!("is {asked:?}"),
            format!("{own}, the tier of this caller"),
        )),
        (Some(own), _) => Ok(Some(own.clone())),
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut given = headers.get_all(KEY_HEADER).iter();
    let Some(value) = given.next() else {
        return Ok(None);
    };
    let refuse =
        |problem| ApiError::invalid_field(KEY_HEADER, problem, "1 to 190 bytes of text, once");
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| refuse("is not text"))?;
    if given.next().is_some() {
        return Err(refuse("is given twice"));
    }
    if text.starts_with(CHILD_KEYS) {
        return Err(refuse("starts with child/, which is for children of tasks"));
    }

    // The number of a task in its batch is added to the key.
    bounds::check_text(KEY_HEADER, text, bounds::NAME_BYTES - 10)?;
    Ok(Some(text.to_owned()))
}

/// Compares the requests of a repeated key: every field, and the parameters byte by byte.
fn digest<'a>(requests: impl IntoIterator<Item = &'a SubmitRequest>) -> Result<[u8; 32], ApiError> {
    let mut hash = Sha256::new();
    for request in requests {
        let text = serde_json::to_vec(request).map_err(|_| ApiError::Unwritable)?;
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(&text);
    }
    Ok(hash.finalize().into())
}
