//! The handlers. Each step depends on the task's type, its number, and its counters.

use std::sync::Arc;

use longhaul_domain::{
    Idempotency, Json, NewTask, Phase, RetryPolicy, StoreError, TaskRecord, Timestamp,
    contract::store::{Access, AttemptEnd, Failure, Verdict},
    filter::{PageRequest, TaskFilter},
};
use longhaul_engine::Engine;
use longhaul_sdk::StopReason;
use longhaul_testkit::names::queue_name;

use crate::coverage::Situation;
use crate::dice::Dice;
use crate::node::Run;
use crate::store::{SimStore, ready};

pub(crate) const QUEUES: [&str; 2] = ["near", "far"];
/// The types that every process serves. No process serves `orphan`.
pub(crate) const TYPES: [&str; 8] = [
    "plain", "flaky", "fatal", "snoozer", "saver", "hung", "quitter", "parent",
];

/// Steps that a handler may still take after it was asked to stop.
const STOP_STEPS: u64 = 3;

/// The number that the task was submitted with.
pub(crate) fn number(task: &TaskRecord) -> u64 {
    task.parameters.as_str().parse().unwrap_or(0)
}

pub(crate) fn json(text: impl ToString) -> Json {
    Json::trusted(text.to_string())
}

/// A task of a type. Its number decides how it behaves.
pub(crate) fn new_task(owner: &str, kind: &str, queue: &str, number: u64) -> NewTask {
    let timeout_ms = (kind == "hung").then_some(5_000);
    NewTask {
        max_attempts: 2 + u32::from(number.is_multiple_of(2)),
        timeout_ms,
        finish_step: kind == "parent" && number % 2 == 1,
        retry: RetryPolicy {
            initial_ms: 500,
            max_ms: 5_000,
            ..RetryPolicy::default()
        },
        ..NewTask::new(owner, kind, queue_name(queue), json(number))
    }
}

/// Takes one step. Returns the outcome when the handler has ended.
pub(crate) fn step(
    run: &mut Run,
    engine: &Arc<Engine>,
    store: &SimStore,
    dice: &mut Dice,
) -> Option<AttemptEnd> {
    run.steps += 1;
    match run.stop {
        Some(StopReason::Drain) => return Some(AttemptEnd::HandedBack),
        Some(StopReason::Cancelled | StopReason::Lost)
            if dice.one_in(2) || run.steps > STOP_STEPS =>
        {
            return Some(AttemptEnd::Cancelled);
        }
        Some(StopReason::Cancelled | StopReason::Lost) | None => {}
    }

    if dice.one_in(6) {
        report_progress(run, engine, store);
    }

    if run.task.task_type != "hung" && run.steps <= number(&run.task) % 3 {
        return None;
    }

    match run.task.task_type.as_str() {
        "flaky" if u64::from(run.task.retry_count) < number(&run.task) % 4 => {
            Some(failed(run, "retryable", dice))
        }
        "fatal" => Some(AttemptEnd::Failed {
            failure: failure("fatal"),
            retry_in_ms: None,
        }),
        "snoozer" if u64::from(run.task.snooze_count) <= number(&run.task) % 2 => {
            Some(AttemptEnd::Snoozed {
                reason: None,
                delay_ms: dice.between(0, 3_000),
            })
        }
        "saver" => save(run, engine, store, dice),
        "hung" if run.task.retry_count == 0 => Some(failed(run, "timeout", dice)),
        "quitter" => Some(AttemptEnd::Cancelled),
        "parent" => run_parent(run, engine, store, dice),
        _ => Some(completed(run)),
    }
}

fn completed(run: &Run) -> AttemptEnd {
    AttemptEnd::Completed {
        result: Some(json(run.task.attempt)),
        result_url: None,
    }
}

fn failure(class: &str) -> Failure {
    Failure {
        class: class.to_owned(),
        message: "scripted failure".to_owned(),
        detail: None,
    }
}

fn failed(run: &Run, class: &str, dice: &mut Dice) -> AttemptEnd {
    let wait = run
        .task
        .retry
        .delay_ms(run.task.retry_count + 1, dice.unit());
    AttemptEnd::Failed {
        failure: failure(class),
        retry_in_ms: Some(wait),
    }
}

fn report_progress(run: &Run, engine: &Arc<Engine>, store: &SimStore) {
    let saved = ready(engine.save_progress(&[(run.lease, json(run.steps))]));
    if saved.is_ok_and(|verdicts| !verdicts[0].is_accepted()) {
        store.history().saw(Situation::ZombieWriteRefused);
    }
}

/// Saves one checkpoint per step, starting from the previous attempt's checkpoint, and completes
/// after the third.
fn save(run: &Run, engine: &Arc<Engine>, store: &SimStore, dice: &mut Dice) -> Option<AttemptEnd> {
    let saved = run
        .task
        .checkpoint
        .as_ref()
        .and_then(|saved| saved.as_str().parse().ok())
        .unwrap_or(0_u64);

    let next = saved.max(1) + run.steps;
    if next > 4 {
        return Some(completed(run));
    }

    match ready(engine.save_checkpoint(&run.lease, &json(next))) {
        Ok(Verdict::Applied(_) | Verdict::Repeated(_)) => None,
        Ok(Verdict::Stale(_) | Verdict::Missing) => {
            store.history().saw(Situation::ZombieWriteRefused);
            Some(AttemptEnd::Cancelled)
        }
        Err(_) => Some(failed(run, "retryable", dice)),
    }
}

/// Whether the handler can take a step. A `hung` handler never returns in its first attempt, so its
/// own process or the expirer has to end it.
pub(crate) fn is_ready(run: &Run, now: Timestamp) -> bool {
    let hangs = run.task.task_type == "hung" && run.task.retry_count == 0;
    let started = run.task.last_attempt_at.unwrap_or_default();
    let is_late = run
        .task
        .timeout_ms
        .is_some_and(|ms| started.plus_ms(ms) <= now);
    !hangs || run.stop.is_some() || (is_late && number(&run.task).is_multiple_of(2))
}

/// Submits its children and waits for them. In its finish step it reads how they ended.
fn run_parent(
    run: &Run,
    engine: &Arc<Engine>,
    store: &SimStore,
    dice: &mut Dice,
) -> Option<AttemptEnd> {
    if run.task.phase == Phase::Finish {
        return Some(read_children(run, engine, dice));
    }

    let children = (0..1 + number(&run.task) % 4)
        .map(|index| child(run, index))
        .collect();

    match ready(engine.submit_many(children)) {
        Ok(made) => {
            let mut history = store.history();
            for child in made {
                history.acknowledged(child.task_id);
                if child.repeated {
                    history.saw(Situation::ChildSubmittedAgain);
                }
            }

            Some(completed(run))
        }
        Err(StoreError::Unavailable(_)) => Some(failed(run, "retryable", dice)),
        Err(_) => Some(AttemptEnd::Failed {
            failure: failure("fatal"),
            retry_in_ms: None,
        }),
    }
}

/// A child of the parent. Every attempt of the parent submits the same children.
fn child(run: &Run, index: u64) -> NewTask {
    let mixed = number(&run.task) / 4 + index * 7;
    let is_top = run.task.parent_id.is_none();
    let kind = match mixed % 9 {
        0..=2 => "plain",
        3 => "flaky",
        4 => "fatal",
        5 => "snoozer",
        6 => "saver",
        7 if is_top => "parent",
        _ => "quitter",
    };

    let key = format!("child/{}/{index}", run.task.id);
    let queue = QUEUES[usize::try_from(mixed % 2).unwrap_or(0)];
    NewTask {
        parent: Some(run.lease),
        task_key: Some(key.clone()),
        idempotency: Some(Idempotency {
            key,
            digest: [0; 32],
            ttl_ms: 366 * 24 * 3_600 * 1_000,
        }),
        ..new_task(&run.task.owner, kind, queue, mixed)
    }
}

/// The finish step of a parent. It fails once for some numbers.
fn read_children(run: &Run, engine: &Arc<Engine>, dice: &mut Dice) -> AttemptEnd {
    let filter = TaskFilter {
        parent_id: Some(run.task.id),
        ..TaskFilter::default()
    };
    let page = PageRequest::first(100);

    let found = ready(engine.reads().list_tasks(&Access::All, &filter, &page));
    if found.is_err() || (run.task.retry_count == 0 && number(&run.task) % 8 == 3) {
        return failed(run, "retryable", dice);
    }

    completed(run)
}
