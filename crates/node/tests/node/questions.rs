//! Questions that handlers ask while they run, and their answers.

use std::convert::Infallible;
use std::future::pending;
use std::io::{Error, ErrorKind};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use longhaul::{Context, Handle, Outcome, Question, Status, Task, TaskInfo, testing::TestLonghaul};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::memory_store::{on, store};

/// Whether this picture may be used.
#[derive(Serialize, Deserialize)]
struct MayUse {
    picture: u32,
}

impl Question for MayUse {
    const NAME: &'static str = "may_use";
    type Answer = bool;
}

/// Asks whether it may use a picture. The answer is its result.
struct Draw;

impl Task for Draw {
    const TYPE: &'static str = "draw";
    type Params = u32;
    type Output = bool;

    async fn run(&self, ctx: Context<Self>) -> Outcome<bool> {
        ctx.ask(MayUse {
            picture: ctx.params,
        })
        .await
    }
}

async fn run(longhaul: &TestLonghaul) -> Handle<Draw> {
    let handle = longhaul
        .submit::<Draw>(7)
        .owner("u-7")
        .max_attempts(2)
        .await
        .unwrap();

    longhaul.run_until_idle().await;
    handle
}

/// Its answers fail like this.
fn failing(kind: ErrorKind) -> TestLonghaul {
    let failing = move |_: MayUse, _| async move { Err::<bool, _>(Error::from(kind)) };
    TestLonghaul::new()
        .register(Draw)
        .configure(|builder| builder.answer(failing))
        .start()
}

#[tokio::test]
async fn the_answer_gets_the_question_and_the_asking_task() {
    let answer = |question: MayUse, asker: Arc<TaskInfo>| async move {
        Ok::<_, Infallible>(asker.owner == format!("u-{}", question.picture))
    };
    let longhaul = TestLonghaul::new()
        .register(Draw)
        .configure(|builder| builder.answer(answer))
        .start();
    let handle = run(&longhaul).await;
    assert!(longhaul.result(&handle));
}

#[tokio::test]
async fn every_answer_is_of_its_moment() {
    let is_allowed = Arc::new(AtomicBool::new(true));
    let now = Arc::clone(&is_allowed);
    let answer = move |_: MayUse, _| {
        let now = now.load(Ordering::Relaxed);
        async move { Ok::<_, Infallible>(now) }
    };
    let longhaul = TestLonghaul::new()
        .register(Draw)
        .configure(|builder| builder.answer(answer))
        .start();

    let before = run(&longhaul).await;
    is_allowed.store(false, Ordering::Relaxed);
    let after = run(&longhaul).await;
    assert_eq!(
        (longhaul.result(&before), longhaul.result(&after)),
        (true, false)
    );
}

#[tokio::test]
async fn what_a_failed_answer_means_is_said_by_the_type_that_asks() {
    let passing = failing(ErrorKind::ConnectionRefused);
    let lasting = failing(ErrorKind::NotFound);
    let retried = run(&passing).await;
    let failed = run(&lasting).await;
    assert_eq!(passing.record(&retried).status, Status::Retrying);
    lasting.assert_ended(&failed, Status::Failed);
}

#[tokio::test]
async fn a_question_that_nobody_answers_fails_its_task_and_says_what_to_do() {
    let longhaul = TestLonghaul::new().register(Draw).start();
    let handle = run(&longhaul).await;
    longhaul.assert_ended(&handle, Status::Failed);
    let error = longhaul.record(&handle).error.unwrap();
    assert_eq!(error.class, "unanswered");
    assert!(
        error
            .message
            .contains("\"may_use\"; register an answer with Builder::answer"),
        "{}",
        error.message
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_is_not_waited_for_without_end() {
    let silent = |_: MayUse, _| pending::<Result<bool, Infallible>>();
    let longhaul = TestLonghaul::new()
        .register(Draw)
        .configure(|builder| builder.answer(silent))
        .start();
    let handle = run(&longhaul).await;
    let task = longhaul.record(&handle);

    assert_eq!(task.status, Status::Retrying);
    assert_eq!(
        task.error.unwrap().message,
        "may_use was not answered within 10s"
    );
}

#[tokio::test]
async fn a_handler_that_waits_for_an_answer_hears_of_a_cancel() {
    let asked = Arc::new(Notify::new());
    let was_asked = Arc::clone(&asked);
    let silent = move |_: MayUse, _| {
        was_asked.notify_one();
        pending::<Result<bool, Infallible>>()
    };
    let store = Arc::new(store());
    let longhaul = on(&store)
        .register(Draw)
        .answer(silent)
        .start()
        .await
        .unwrap();

    let handle = longhaul.submit::<Draw>(7).await.unwrap();
    asked.notified().await;
    handle.cancel().await.unwrap();
    assert_eq!(handle.ended().await.unwrap().status, Status::Cancelled);
    longhaul.stop().await;
}

#[tokio::test]
async fn two_who_answer_one_question_are_refused_at_start() {
    let yes = |_: MayUse, _| async { Ok::<_, Infallible>(true) };
    let refused = on(&Arc::new(store()))
        .answer(yes)
        .answer(yes)
        .start()
        .await
        .unwrap_err();

    assert_eq!(
        refused.to_string(),
        "question \"may_use\" is answered twice; allowed: one answer for each question"
    );
}
