//! Why a task is not running yet, as a sentence and as facts.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use longhaul_api::{Moment, WhyView};
use longhaul_domain::Status;
use longhaul_engine::queries::why::{Ahead, Why};
use serde_json::{Value, json};

use crate::{
    api::{Api, PathId},
    identity::{Caller, Scope},
    openapi::Doc,
    problem::ApiError,
    reply,
};

pub(crate) fn get_doc() -> Doc {
    Doc::new("whyTask", "Why a task is not running yet")
        .answer::<WhyView>(200, "One sentence and its facts")
}

pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    let knows = |task_type: &str| api.catalog.get(task_type).is_some();
    let why = api.engine.why(&caller.access(), id, knows).await?;
    let (sentence, mut facts) = told(&why);
    if let Why::QueueNotServed { served, .. } = &why
        && caller.may(Scope::Operate)
    {
        facts.push(("servedQueues", json!(served)));
    }
    let facts = facts
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    Ok(reply::ok(&WhyView {
        sentence,
        reason: why.code().to_owned(),
        facts,
    }))
}

fn words(ahead: Ahead) -> String {
    match ahead {
        Ahead::Exactly(1) => "1 task is".to_owned(),
        Ahead::Exactly(n) => format!("{n} tasks are"),
        Ahead::AtLeast(n) => format!("{n} tasks or more are"),
    }
}

fn number(ahead: Ahead) -> Value {
    match ahead {
        Ahead::Exactly(n) | Ahead::AtLeast(n) => json!(n),
    }
}

fn told(why: &Why) -> (String, Vec<(&'static str, Value)>) {
    match why {
        Why::Ended { status, at } => {
            let at = at.map(Moment);
            let when = at.map(|at| format!(" at {at}")).unwrap_or_default();
            (
                format!("It has ended as {}{when}.", status.as_str()),
                vec![("status", json!(status)), ("endedAt", json!(at))],
            )
        }
        Why::Running {
            attempt,
            host,
            since,
        } => {
            let place = host
                .as_ref()
                .map(|host| format!(" on {host}"))
                .unwrap_or_default();
            let facts = vec![
                ("attempt", json!(attempt)),
                ("host", json!(host)),
                ("since", json!(since.map(Moment))),
            ];
            (format!("It is running{place}, attempt {attempt}."), facts)
        }
        Why::WaitsForChildren { open, total } => (
            format!("It waits for {open} of its {total} children."),
            vec![("openChildren", json!(open)), ("children", json!(total))],
        ),
        Why::Paused { queue, since } => (
            format!("Its queue {queue} is paused since {}.", Moment(*since)),
            vec![("queue", json!(queue)), ("pausedAt", json!(Moment(*since)))],
        ),
        Why::NotDue { due_at, status } => {
            let what = if *status == Status::Retrying {
                "Its next attempt is due"
            } else {
                "It is due"
            };
            (
                format!("{what} at {}.", Moment(*due_at)),
                vec![("dueAt", json!(Moment(*due_at)))],
            )
        }
        Why::NoWorker { task_type } => {
            let sentence = format!(
                "No node that is alive runs the type {task_type}: start a worker that does."
            );
            (sentence, vec![("taskType", json!(task_type))])
        }
        Why::QueueNotServed {
            queue,
            task_type,
            served: _,
        } => (
            format!(
                "No node that is alive takes {task_type} from the queue {queue}: start a worker that does."
            ),
            vec![("queue", json!(queue)), ("taskType", json!(task_type))],
        ),
        Why::NoNode => (
            "No node is alive that runs tasks: start a worker.".to_owned(),
            vec![],
        ),
        Why::Limited {
            reason,
            due_at,
            in_s,
        } => (
            format!("A rate limit holds it back ({reason}); it is tried again in {in_s} s."),
            vec![
                ("limit", json!(reason)),
                ("dueAt", json!(Moment(*due_at))),
                ("inSeconds", json!(in_s)),
            ],
        ),
        Why::SlotsFull {
            queue,
            used,
            slots,
            ahead,
        } => (
            format!(
                "It is due, and no slot is free: {used} of {slots} run; {} ahead of it in {queue}.",
                words(*ahead)
            ),
            vec![
                ("queue", json!(queue)),
                ("used", json!(used)),
                ("slots", json!(slots)),
                ("ahead", number(*ahead)),
            ],
        ),
        Why::InLine {
            queue,
            ahead,
            waiting,
            running,
            nodes,
        } => (
            format!(
                "It is due and in line: {} ahead of it in {queue}, {running} run, {nodes} nodes run tasks.",
                words(*ahead)
            ),
            vec![
                ("queue", json!(queue)),
                ("ahead", number(*ahead)),
                ("othersWaiting", json!(waiting)),
                ("running", json!(running)),
                ("nodes", json!(nodes)),
            ],
        ),
    }
}
