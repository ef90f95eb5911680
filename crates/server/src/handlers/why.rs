//! Why a task is not running yet: a sentence for people and facts for programs.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use longhaul_api::{Moment, WhyView};
use longhaul_domain::{Status, Timestamp};
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
        .answer::<WhyView>(200, "A sentence and its facts")
}

pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    let is_known = |task_type: &str| api.catalog.get(task_type).is_some();
    let why = api.engine.why(&caller.access(), id, is_known).await?;

    let mut facts = facts(&why);
    // The queues of other nodes are for operators only.
    if let Why::QueueNotServed { served, .. } = &why
        && caller.may(Scope::Operate)
    {
        facts.push(("servedQueues", json!(served)));
    }

    let facts = facts.into_iter();
    Ok(reply::ok(&WhyView {
        sentence: sentence(&why),
        reason: why.code().to_owned(),
        facts: facts
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    }))
}

fn sentence(why: &Why) -> String {
    match why {
        Why::Ended { status, at } => {
            let when = at.map(|at| format!(" at {}", Moment(at)));
            let when = when.unwrap_or_default();
            format!("It has ended as {}{when}.", status.as_str())
        }
        Why::Running { attempt, host, .. } => {
            let host = host.as_ref().map(|host| format!(" on {host}"));
            let host = host.unwrap_or_default();
            format!("It is running{host}, attempt {attempt}.")
        }

        Why::WaitsForChildren { open, total } => {
            format!("It waits for {open} of its {total} children.")
        }
        Why::StoreNotWritable => {
            "The store can be read but not written, so nothing is claimed: see its log, its disk \
             and what locks it."
                .to_owned()
        }
        Why::Paused { queue, since } => {
            format!("Its queue {queue} is paused since {}.", Moment(*since))
        }
        Why::NotDue { due_at, status } => {
            let what = if *status == Status::Retrying {
                "Its next attempt is due"
            } else {
                "It is due"
            };
            format!("{what} at {}.", Moment(*due_at))
        }
        Why::NoWorker { task_type } => {
            format!("No live node runs the type {task_type}: start a worker that does.")
        }
        Why::QueueNotServed {
            queue, task_type, ..
        } => format!(
            "No live node takes {task_type} from the queue {queue}: start a worker that does."
        ),
        Why::NoNode => "No live node runs tasks: start a worker.".to_owned(),
        Why::Limited { reason, in_s, .. } => {
            format!("A rate limit delays it ({reason}); the next try is in {in_s} s.")
        }
        Why::SlotsFull {
            queue,
            used,
            slots,
            ahead,
        } => {
            let ahead = tasks_are(*ahead);
            format!(
                "It is due, and no slot is free: {used} of {slots} run; {ahead} ahead of it in \
                 {queue}."
            )
        }
        Why::InLine {
            queue,
            ahead,
            running,
            nodes,
            ..
        } => {
            let ahead = tasks_are(*ahead);
            format!(
                "It is due and in line: {ahead} ahead of it in {queue}, {running} run, \
                 {nodes} nodes run tasks."
            )
        }
    }
}

fn facts(why: &Why) -> Vec<(&'static str, Value)> {
    match why {
        Why::Ended { status, at } => {
            vec![("status", json!(status)), ("endedAt", moment(*at))]
        }
        Why::Running {
            attempt,
            host,
            since,
        } => vec![
            ("attempt", json!(attempt)),
            ("host", json!(host)),
            ("since", moment(*since)),
        ],

        Why::WaitsForChildren { open, total } => {
            vec![("openChildren", json!(open)), ("children", json!(total))]
        }
        Why::Paused { queue, since } => {
            vec![("queue", json!(queue)), ("pausedAt", json!(Moment(*since)))]
        }
        Why::NotDue { due_at, .. } => vec![("dueAt", json!(Moment(*due_at)))],
        Why::NoWorker { task_type } => vec![("taskType", json!(task_type))],
        Why::QueueNotServed {
            queue, task_type, ..
        } => vec![("queue", json!(queue)), ("taskType", json!(task_type))],
        Why::NoNode | Why::StoreNotWritable => vec![],
        Why::Limited {
            reason,
            due_at,
            in_s,
        } => vec![
            ("limit", json!(reason)),
            ("dueAt", json!(Moment(*due_at))),
            ("inSeconds", json!(in_s)),
        ],
        Why::SlotsFull {
            queue,
            used,
            slots,
            ahead,
        } => vec![
            ("queue", json!(queue)),
            ("used", json!(used)),
            ("slots", json!(slots)),
            ("ahead", number(*ahead)),
        ],
        Why::InLine {
            queue,
            ahead,
            waiting,
            running,
            nodes,
        } => vec![
            ("queue", json!(queue)),
            ("ahead", number(*ahead)),
            ("othersWaiting", json!(waiting)),
            ("running", json!(running)),
            ("nodes", json!(nodes)),
        ],
    }
}

fn moment(at: Option<Timestamp>) -> Value {
    json!(at.map(Moment))
}

fn tasks_are(ahead: Ahead) -> String {
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
