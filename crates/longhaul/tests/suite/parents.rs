//! Parents and children: fan out, finish step, partial success, redo of the failed ones.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use libtest_mimic::Trial;
use longhaul::{Children, Context, JsonSchema, Outcome, RetryScope, Status, Stop, Task};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::{Home, Place, open, trial, until};

pub(crate) fn trials(place: Place) -> Vec<Trial> {
    vec![
        trial(
            place,
            "parents::the_finish_step_sees_all_results",
            the_finish_step_sees_all_results,
        ),
        trial(
            place,
            "parents::failed_children_can_be_redone_alone",
            failed_children_can_be_redone_alone,
        ),
        trial(
            place,
            "parents::children_over_which_the_finish_step_failed_can_be_redone",
            finish_that_failed,
        ),
        trial(
            place,
            "parents::a_second_attempt_makes_no_second_children",
            a_second_attempt_makes_no_second_children,
        ),
        trial(
            place,
            "parents::a_child_whose_submit_was_given_up_is_the_same_one_later",
            a_submit_that_was_given_up,
        ),
        trial(
            place,
            "parents::cancel_takes_the_children_along",
            cancel_takes_the_children_along,
        ),
        trial(
            place,
            "parents::a_running_child_hears_of_its_parents_cancel",
            a_running_child_hears,
        ),
    ]
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Square(u32);

struct Squarer {
    /// Whether odd numbers fail.
    is_picky: Arc<AtomicBool>,
}

impl Task for Squarer {
    const TYPE: &'static str = "square";
    type Params = Square;
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        let Square(number) = ctx.params;
        if number % 2 == 1 && self.is_picky.load(Ordering::Relaxed) {
            return Err(Stop::fatal("odd numbers are not for me"));
        }
        Ok(number * number)
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct UpTo {
    numbers: u32,
    fail_first: bool,
    child_delay_s: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Debug, PartialEq)]
struct Sum {
    sum: u32,
    failed: usize,
}

struct Summer;

impl Task for Summer {
    const TYPE: &'static str = "sum";
    const FINISH_STEP: bool = true;
    type Params = UpTo;
    type Output = Sum;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Sum> {
        if ctx.params.child_delay_s > 0 {
            let delay = std::time::Duration::from_secs(ctx.params.child_delay_s);
            ctx.submit::<Squarer>(Square(1)).delay(delay).await?;
        }

        ctx.submit_all::<Squarer>((0..ctx.params.numbers).map(Square))
            .await?;
        if ctx.params.fail_first && ctx.attempt() == 1 {
            return Err(Stop::retry_after(
                "once more",
                std::time::Duration::from_millis(1),
            ));
        }

        Err(Stop::wait_for_children())
    }

    async fn finish(&self, _ctx: Context<Self>, children: Children) -> Outcome<Sum> {
        Ok(Sum {
            sum: children.results::<Squarer>()?.iter().sum(),
            failed: children.failed().count(),
        })
    }
}

fn up_to(numbers: u32) -> UpTo {
    UpTo {
        numbers,
        fail_first: false,
        child_delay_s: 0,
    }
}

async fn the_finish_step_sees_all_results(database: Home) {
    let squarer = Squarer {
        is_picky: Arc::default(),
    };
    let longhaul = open(&database)
        .await
        .register(squarer)
        .register(Summer)
        .start()
        .await
        .unwrap();

    let handle = longhaul.submit::<Summer>(up_to(20)).await.unwrap();
    assert_eq!(
        handle.result().await.unwrap(),
        Sum {
            sum: 2_470,
            failed: 0
        }
    );

    let task = handle.task().await.unwrap();
    assert_eq!(
        (task.status, task.children.total, task.children.completed),
        (Status::Completed, 20, 20)
    );
    longhaul.stop().await;
}

async fn failed_children_can_be_redone_alone(database: Home) {
    let is_picky = Arc::new(AtomicBool::new(true));
    let squarer = Squarer {
        is_picky: Arc::clone(&is_picky),
    };
    let longhaul = open(&database)
        .await
        .register(squarer)
        .register(Summer)
        .start()
        .await
        .unwrap();

    let handle = longhaul.submit::<Summer>(up_to(4)).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), Sum { sum: 4, failed: 2 });
    assert_eq!(handle.status().await.unwrap(), Status::CompletedWithErrors);

    is_picky.store(false, Ordering::Relaxed);
    longhaul
        .retry(handle.id(), RetryScope::FailedChildren)
        .await
        .unwrap();
    assert_eq!(handle.result().await.unwrap(), Sum { sum: 14, failed: 0 });
    assert_eq!(handle.status().await.unwrap(), Status::Completed);
    longhaul.stop().await;
}

/// Cannot finish without all of its children.
struct Strict;

impl Task for Strict {
    const TYPE: &'static str = "strict";
    const FINISH_STEP: bool = true;
    type Params = u32;
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        ctx.submit_all::<Squarer>((0..ctx.params).map(Square))
            .await?;
        Err(Stop::wait_for_children())
    }

    async fn finish(&self, _ctx: Context<Self>, children: Children) -> Outcome<u32> {
        if children
            .all
            .iter()
            .any(|child| child.status != Status::Completed)
        {
            return Err(Stop::fatal("it takes all of them"));
        }
        Ok(children.results::<Squarer>()?.iter().sum())
    }
}

async fn finish_that_failed(database: Home) {
    let is_picky = Arc::new(AtomicBool::new(true));
    let squarer = Squarer {
        is_picky: Arc::clone(&is_picky),
    };
    let longhaul = open(&database)
        .await
        .register(squarer)
        .register(Strict)
        .start()
        .await
        .unwrap();

    let handle = longhaul.submit::<Strict>(4).await.unwrap();
    assert_eq!(handle.ended().await.unwrap().status, Status::Failed);
    is_picky.store(false, Ordering::Relaxed);
    longhaul
        .retry(handle.id(), RetryScope::FailedChildren)
        .await
        .unwrap();
    assert_eq!(handle.result().await.unwrap(), 14);
    longhaul.stop().await;
}

async fn a_second_attempt_makes_no_second_children(database: Home) {
    let squarer = Squarer {
        is_picky: Arc::default(),
    };
    let longhaul = open(&database)
        .await
        .register(squarer)
        .register(Summer)
        .start()
        .await
        .unwrap();

    let handle = longhaul
        .submit::<Summer>(UpTo {
            fail_first: true,
            ..up_to(5)
        })
        .await
        .unwrap();

    assert_eq!(handle.result().await.unwrap(), Sum { sum: 30, failed: 0 });
    assert_eq!(handle.task().await.unwrap().children.total, 5);
    longhaul.stop().await;
}

async fn cancel_takes_the_children_along(database: Home) {
    let squarer = Squarer {
        is_picky: Arc::default(),
    };
    let longhaul = open(&database)
        .await
        .register(squarer)
        .register(Summer)
        .start()
        .await
        .unwrap();

    let handle = longhaul
        .submit::<Summer>(UpTo {
            child_delay_s: 3_600,
            ..up_to(2)
        })
        .await
        .unwrap();

    until(async || handle.status().await.unwrap() == Status::Waiting).await;
    handle.cancel().await.unwrap();
    assert_eq!(
        database
            .count("SELECT count(*) FROM tasks WHERE status IN ('QUEUED', 'RUNNING')")
            .await,
        0
    );

    longhaul.stop().await;
}

/// Waits for a child that runs until it should stop.
struct Guardian;

impl Task for Guardian {
    const TYPE: &'static str = "guardian";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        ctx.submit::<Listener>(()).await?;
        Err(Stop::wait_for_children())
    }
}

struct Listener {
    started: Arc<Notify>,
    stopped: Arc<Notify>,
}

impl Task for Listener {
    const TYPE: &'static str = "listener";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        self.started.notify_one();
        ctx.cancelled().await;
        self.stopped.notify_one();
        ctx.check()
    }
}

async fn a_running_child_hears(database: Home) {
    let started = Arc::new(Notify::new());
    let stopped = Arc::new(Notify::new());
    let listener = Listener {
        started: Arc::clone(&started),
        stopped: Arc::clone(&stopped),
    };
    let longhaul = open(&database)
        .await
        .register(listener)
        .register(Guardian)
        .start()
        .await
        .unwrap();

    let handle = longhaul.submit::<Guardian>(()).await.unwrap();
    started.notified().await;
    until(async || handle.status().await.unwrap() == Status::Waiting).await;
    assert_eq!(handle.cancel().await.unwrap(), Status::Cancelled);
    stopped.notified().await;
    longhaul.stop().await;
}

/// Gives a submit up in the middle, so that its outcome is unknown like that of one whose answer
/// was lost, and makes it again.
struct Repeats;

impl Task for Repeats {
    const TYPE: &'static str = "repeats";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        let given_up = ctx.submit::<Quiet>(0).into_future().now_or_never();
        assert!(given_up.is_none(), "no database answers at once");
        let again = ctx.submit::<Quiet>(0).await?;
        let equal_on_purpose = ctx.submit::<Quiet>(0).await?;
        assert_ne!(again.id(), equal_on_purpose.id());
        let given_up = ctx.submit_all::<Quiet>([1, 1]).now_or_never();
        assert!(given_up.is_none(), "no database answers at once");
        ctx.submit_all::<Quiet>([1, 1]).await?;

        Err(Stop::wait_for_children())
    }
}

/// Does nothing.
struct Quiet;

impl Task for Quiet {
    const TYPE: &'static str = "quiet";
    type Params = u32;
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        Ok(())
    }
}

async fn a_submit_that_was_given_up(database: Home) {
    let longhaul = open(&database)
        .await
        .register(Repeats)
        .register(Quiet)
        .start()
        .await
        .unwrap();

    let handle = longhaul
        .submit::<Repeats>(())
        .max_attempts(1)
        .await
        .unwrap();
    let task = handle.ended().await.unwrap();

    assert_eq!(
        (task.status, task.children.total),
        (Status::Completed, 4),
        "{:?}",
        task.error
    );

    longhaul.stop().await;
}
