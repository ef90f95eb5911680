//! Testing: a task's tests, in memory and without waiting. A program has this in `#[cfg(test)]`
//! with `#[tokio::test(start_paused = true)]`.
//!
//! Run it with `cargo run -p longhaul --features testing --example testing`.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::Duration;

use longhaul::testing::{FakeProvider, ProviderError, TestLonghaul};
use longhaul::{Class, Context, Outcome, Status, Task};

/// The task under test. It summarises chapter by chapter.
struct Summarise {
    provider: FakeProvider,
}

impl Task for Summarise {
    const TYPE: &'static str = "summarise";
    type Params = usize;
    type Output = Vec<String>;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Vec<String>> {
        let mut done: Vec<String> = ctx.checkpoint()?.unwrap_or_default();
        while done.len() < ctx.params {
            done.push(self.provider.call().await?);
            ctx.info(format!("chapter {} is done", done.len()));
            ctx.save_checkpoint(&done).await?;
        }
        Ok(done)
    }

    fn classify(&self, error: &(dyn std::error::Error + 'static)) -> Class {
        ProviderError::classify(error)
    }
}

/// With tokio's paused clock, sleeping handlers and slow providers take no time.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> anyhow::Result<()> {
    let hour = Duration::from_secs(3_600);
    let provider = FakeProvider::new()
        .text("one")
        .too_many_requests(hour)
        .slow(hour, "two")
        .cut_off_after("th")
        .text("three");

    let longhaul = TestLonghaul::new()
        .register(Summarise {
            provider: provider.clone(),
        })
        .start();

    let handle = longhaul.submit::<Summarise>(3).await?;
    assert_eq!(longhaul.submitted::<Summarise>(), [3]);
    longhaul.run_until_idle().await;
    assert_eq!(
        (longhaul.record(&handle).status, provider.calls()),
        (Status::Retrying, 2)
    );
    println!("refused by the provider, waiting for an hour");

    longhaul.advance(hour);
    longhaul.crash_after_checkpoints(1);
    longhaul.run_until_idle().await;
    assert_eq!(longhaul.crashes(), 1);
    println!("crashed after chapter 2, continued until the answer was cut off");

    longhaul.run_until_done().await;
    longhaul.assert_ended(&handle, Status::Completed);
    assert_eq!(longhaul.result(&handle), ["one", "two", "three"]);
    let task = longhaul.record(&handle);
    assert_eq!(
        (task.snooze_count, task.crash_count, task.retry_count),
        (1, 1, 1)
    );
    println!(
        "completed at attempt {} with {} calls",
        task.attempt,
        provider.calls()
    );

    assert_eq!((longhaul.attempts(&handle).len(), provider.calls()), (4, 5));
    assert_eq!(
        longhaul.logs(&handle).last().map(String::as_str),
        Some("chapter 3 is done")
    );

    Ok(())
}
