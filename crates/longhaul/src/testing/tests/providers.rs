//! The fake provider: its script, and what its errors mean for tasks.

use std::time::Duration;

use super::{HOUR, MINUTE, panic_of};
use crate::{
    Class, Context, Limit, Outcome, Status, Task, TypeSettings,
    testing::{FakeProvider, ProviderError, TestLonghaul},
};

#[tokio::test(start_paused = true)]
async fn each_call_gets_the_next_answer_and_the_last_one_holds() {
    let script = FakeProvider::new()
        .text("one")
        .too_many_requests(MINUTE)
        .cut_off_after("ha")
        .slow(HOUR, "late");
    let provider = script.clone();

    assert_eq!(provider.call().await.unwrap(), "one");
    assert_eq!(
        provider.call().await.unwrap_err(),
        ProviderError::TooManyRequests {
            retry_after: MINUTE
        }
    );

    assert_eq!(
        provider.call().await.unwrap_err(),
        ProviderError::CutOff {
            received: "ha".to_owned()
        }
    );

    for _ in 0..2 {
        let before = tokio::time::Instant::now();
        assert_eq!(provider.call().await.unwrap(), "late");
        assert!(before.elapsed() >= HOUR);
    }

    assert_eq!(script.calls(), 5, "clones share the count");
}

#[tokio::test]
async fn a_provider_without_a_script_says_so() {
    let message = panic_of(FakeProvider::new().call()).await;
    assert!(message.contains("has no script"), "{message}");
}

#[test]
fn an_error_is_known_also_as_a_cause() {
    #[derive(Debug, thiserror::Error)]
    #[error("no summary")]
    struct Outer(#[source] ProviderError);

    let limited = ProviderError::TooManyRequests {
        retry_after: MINUTE,
    };
    assert_eq!(
        ProviderError::classify(&Outer(limited)),
        Class::RateLimited {
            retry_after: MINUTE
        }
    );

    assert_eq!(
        ProviderError::classify(&ProviderError::CutOff {
            received: String::new()
        }),
        Class::Retryable
    );

    assert_eq!(ProviderError::classify(&std::fmt::Error), Class::Fatal);
    let timed_out = std::io::Error::from(std::io::ErrorKind::TimedOut);
    assert_eq!(
        ProviderError::classify(&timed_out),
        Class::Retryable,
        "the rest is classified as everywhere"
    );
}

struct Ask(FakeProvider);

impl Task for Ask {
    const TYPE: &'static str = "ask";
    type Params = ();
    type Output = String;

    async fn run(&self, ctx: Context<Self>) -> Outcome<String> {
        let _permit = ctx.permit("fake/model").await?;
        Ok(self.0.call().await?)
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new()
            .permit_wait(Duration::ZERO)
            .max_attempts(2)
    }

    fn classify(&self, error: &(dyn std::error::Error + 'static)) -> Class {
        ProviderError::classify(error)
    }
}

#[tokio::test]
async fn a_refusal_uses_up_no_retry_and_parks_the_key_for_all() {
    let provider = FakeProvider::new().too_many_requests(HOUR).text("answer");
    let longhaul = TestLonghaul::new().register(Ask(provider.clone())).start();
    let first = longhaul.submit::<Ask>(()).await.unwrap();
    longhaul.run_until_idle().await;
    let second = longhaul.submit::<Ask>(()).await.unwrap();

    longhaul.advance(HOUR - MINUTE);
    longhaul.run_until_idle().await;
    assert_eq!(provider.calls(), 1, "the key is parked, so nobody calls");
    longhaul.run_until_done().await;
    assert_eq!(
        (longhaul.result(&first), longhaul.result(&second)),
        ("answer".to_owned(), "answer".to_owned())
    );
    let task = longhaul.record(&first);

    assert_eq!((task.retry_count, task.snooze_count >= 1), (0, true));
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_worth_a_retry() {
    let provider = FakeProvider::new().cut_off_after("ans").text("answer");
    let longhaul = TestLonghaul::new().register(Ask(provider)).start();
    let handle = longhaul.submit::<Ask>(()).await.unwrap();
    longhaul.run_until_done().await;
    assert_eq!(longhaul.result(&handle), "answer");
    assert_eq!(longhaul.record(&handle).retry_count, 1);
}

#[tokio::test]
async fn limits_go_by_the_clock_of_the_test() {
    let provider = FakeProvider::new().text("answer");
    let limit = Limit::per_minute(1);
    let longhaul = TestLonghaul::new()
        .register(Ask(provider.clone()))
        .limit("fake", limit)
        .start();
    let handles = longhaul
        .submit_all((0..3).map(|_| longhaul.submit::<Ask>(())))
        .await
        .unwrap();

    longhaul.run_until_idle().await;
    assert_eq!(provider.calls(), 1);
    longhaul.advance(MINUTE);
    longhaul.run_until_idle().await;
    assert_eq!(provider.calls(), 2);
    longhaul.run_until_done().await;
    assert_eq!(provider.calls(), 3);
    handles
        .iter()
        .for_each(|handle| longhaul.assert_ended(handle, Status::Completed));
}
