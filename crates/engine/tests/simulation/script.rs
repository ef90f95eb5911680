//! What the handlers do: one small step at a time, decided by the task's type, its number, and what it has been through.

use std::sync::Arc;

use longhaul_domain::{
    Idempotency, Json, NewTask, Phase, RetryPolicy, StoreError, Task, Timestamp,
    contract::store::{Access, Failure, Outcome, Verdict},
    filter::{PageRequest, TaskFilter},
};
use longhaul_engine::{Engine, desk::StopReason};

use crate::census::Sight;
use crate::dice::Dice;
use crate::node::Run;
use crate::store::{SimStore, ready};

pub(crate) const QUEUES: [&str; 2] = ["near", "far"];
/// The types that every process knows. `orphan` is known to nobody.
pub(crate) const TYPES: [&str; 8] = [
    "plain", "flaky", "fatal", "snoozer", "saver", "hung", "quitter", "parent",
];

/// Steps that a handler goes on for after it was asked to stop.
const STOP_STEPS: u64 = 3;

/// The number that a task was submitted with.
pub(crate) fn number(task: &Task) -> u64 {
    task.parameters.as_str().parse().unwrap_or(0)
}

pub(crate) fn json(text: impl ToString) -> Json {
    Json::trusted(text.to_string())
}

/// A task of a type; its number says how it behaves.
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
        ..NewTask::new(owner, kind, queue, json(number))
    }
}

/// One step. The outcome, when the handler has come to its end.
pub(crate) fn step(
    run: &mut Run,
    engine: &Arc<Engine>,
    store: &SimStore,
    dice: &mut Dice,
) -> Option<Outcome> {
    run.steps += 1;
    match run.stop {
        Some(StopReason::Drain) => return Some(Outcome::HandedBack),
        Some(StopReason::Cancelled | StopReason::Lost)
            if dice.one_in(2) || run.steps > STOP_STEPS =>
        {
            return Some(Outcome::Cancelled);
        }
        Some(StopReason::Cancelled | StopReason::Lost) | None => {}
    }
    if dice.one_in(6) {
        tell_progress(run, engine, store);
    }
    if run.task.task_type != "hung" && run.steps <= number(&run.task) % 3 {
        return None;
    }
    match run.task.task_type.as_str() {
        "flaky" if u64::from(run.task.retry_count) < number(&run.task) % 4 => {
            Some(failed(run, "retryable", dice))
        }
        "fatal" => Some(Outcome::Failed {
            failure: failure("fatal"),
            retry_in_ms: None,
        }),
        "snoozer" if u64::from(run.task.snooze_count) <= number(&run.task) % 2 => {
            Some(Outcome::Snoozed {
                reason: None,
                delay_ms: dice.between(0, 3_000),
            })
        }
        "saver" => save(run, engine, store, dice),
        "hung" if run.task.retry_count == 0 => Some(failed(run, "timeout", dice)),
        "quitter" => Some(Outcome::Cancelled),
        "parent" => lead(run, engine, store, dice),
        _ => Some(completed(run)),
    }
}

fn completed(run: &Run) -> Outcome {
    Outcome::Completed {
        result: Some(json(run.task.attempt)),
        result_url: None,
    }
}

fn failure(class: &str) -> Failure {
    Failure {
        class: class.to_owned(),
        message: "as the script says".to_owned(),
        detail: None,
    }
}

fn failed(run: &Run, class: &str, dice: &mut Dice) -> Outcome {
    let wait = run
        .task
        .retry
        .delay_ms(run.task.retry_count + 1, dice.unit());
    Outcome::Failed {
        failure: failure(class),
        retry_in_ms: Some(wait),
    }
}

fn tell_progress(run: &Run, engine: &Arc<Engine>, store: &SimStore) {
    let told = ready(engine.store.save_progress(&[(run.lease, json(run.steps))]));
    if told.is_ok_and(|verdicts| !verdicts[0].is_accepted()) {
        store.history().saw(Sight::ZombieWriteRefused);
    }
}

/// Saves one checkpoint in each step, from where the attempt before came to, and ends after the third.
fn save(run: &Run, engine: &Arc<Engine>, store: &SimStore, dice: &mut Dice) -> Option<Outcome> {
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
    match ready(engine.store.save_checkpoint(&run.lease, &json(next))) {
        Ok(Verdict::Applied(_) | Verdict::Repeated(_)) => None,
        Ok(Verdict::Stale(_) | Verdict::Missing) => {
            store.history().saw(Sight::ZombieWriteRefused);
            Some(Outcome::Cancelled)
        }
        Err(_) => Some(failed(run, "retryable", dice)),
    }
}

/// Whether the handler has anything to do. One that hangs does not come back in its first attempt: either its own
/// process notices, or the expirer does.
pub(crate) fn is_ready(run: &Run, now: Timestamp) -> bool {
    let hangs = run.task.task_type == "hung" && run.task.retry_count == 0;
    let started = run.task.last_attempt_at.unwrap_or_default();
    let is_late = run
        .task
        .timeout_ms
        .is_some_and(|ms| started.plus_ms(ms) <= now);
    !hangs || run.stop.is_some() || (is_late && number(&run.task).is_multiple_of(2))
}

/// Submits its children and waits for them, or looks at how they ended.
fn lead(run: &Run, engine: &Arc<Engine>, store: &SimStore, dice: &mut Dice) -> Option<Outcome> {
    if run.task.phase == Phase::Finish {
        return Some(look_at_children(run, engine, dice));
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
                    history.saw(Sight::ChildSubmittedAgain);
                }
            }
            Some(completed(run))
        }
        Err(StoreError::Unavailable(_)) => Some(failed(run, "retryable", dice)),
        Err(_) => Some(Outcome::Failed {
            failure: failure("fatal"),
            retry_in_ms: None,
        }),
    }
}

/// The same child for the same parent, whichever attempt submits it.
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

/// The step of a parent whose children have all ended; it fails once for some.
fn look_at_children(run: &Run, engine: &Arc<Engine>, dice: &mut Dice) -> Outcome {
    let filter = TaskFilter {
        parent_id: Some(run.task.id),
        ..TaskFilter::default()
    };
    let found = ready(
        engine
            .store
            .list_tasks(&Access::All, &filter, &PageRequest::first(100)),
    );
    if found.is_err() || (run.task.retry_count == 0 && number(&run.task) % 8 == 3) {
        return failed(run, "retryable", dice);
    }
    completed(run)
}
