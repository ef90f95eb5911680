//! Rate limits: handlers ask for a permit before they call a provider, and a provider's "too many
//! requests" parks its key for all handlers. Neither uses up a retry.
//!
//! Run it with `cargo run -p longhaul --features testing --example rate_limit`.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::time::{Duration, Instant};

use longhaul::testing::{FakeProvider, ProviderError};
use longhaul::{Class, Context, Limit, Longhaul, Outcome, Task};

struct Summarise {
    /// A program has the provider's client here.
    provider: FakeProvider,
}

impl Task for Summarise {
    const TYPE: &'static str = "summarise";
    type Params = String;
    type Output = String;

    async fn run(&self, ctx: Context<Self>) -> Outcome<String> {
        // Waits for a permit. If that takes too long, the task is snoozed and frees its slot.
        let _permit = ctx.permit("openai/gpt-4").await?;
        Ok(self.provider.call().await?)
    }

    /// Classifies the errors of the provider. A 429 is `Class::RateLimited`, a broken connection
    /// `Class::Retryable`.
    fn classify(&self, error: &(dyn Error + 'static)) -> Class {
        ProviderError::classify(error)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("tasks.db").display());
    let provider = FakeProvider::new()
        .too_many_requests(Duration::from_millis(300))
        .text("in short: it works");

    let longhaul = Longhaul::open(&url)
        .await?
        .limit("openai", Limit::per_second(50))
        .limit("openai/gpt-4", Limit::per_second(20))
        .register(Summarise {
            provider: provider.clone(),
        })
        .start()
        .await?;

    let started = Instant::now();
    let tasks = (0..6).map(|n| longhaul.submit::<Summarise>(format!("text {n}")));
    let handles = longhaul.submit_all(tasks).await?;

    let mut snoozes = 0;
    let mut retries = 0;
    for handle in &handles {
        handle.result().await?;
        let task = handle.task().await?;
        snoozes += task.snooze_count;
        retries += task.retry_count;
    }

    let calls = provider.calls();
    let elapsed = started.elapsed();
    println!("{calls} calls for 6 summaries in {elapsed:?}: {snoozes} snoozes, {retries} retries");
    assert!(
        calls == 7 && snoozes >= 1 && retries == 0,
        "one call was refused, and no retry was used up"
    );
    assert!(
        elapsed >= Duration::from_millis(250),
        "6 permits at 20 a second, the first at once"
    );

    longhaul.stop().await;
    Ok(())
}
