//! Retries: the type decides which errors are worth another attempt.
//!
//! Run it with `cargo run -p longhaul --example retry`.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::io::{Error, ErrorKind};
use std::time::Duration;

use longhaul::{
    Context, Longhaul, NoResult, Outcome, RetryPolicy, Status, Stop, Task, TypeSettings,
};

struct Fetch;

impl Task for Fetch {
    const TYPE: &'static str = "fetch";
    type Params = String;
    type Output = String;

    async fn run(&self, ctx: Context<Self>) -> Outcome<String> {
        match ctx.params.as_str() {
            // Timeouts and broken connections are retried. Classify errors of other libraries in
            // `Task::classify`.
            "flaky" if ctx.attempt() < 3 => Err(Error::from(ErrorKind::TimedOut))?,
            "down" => Err(Stop::retryable("the server is down")),
            "missing" => Err(Stop::fatal("there is no such page")),
            page => Ok(format!("the page {page}")),
        }
    }

    fn settings(&self) -> TypeSettings {
        let quick = RetryPolicy::backoff(Duration::from_millis(10), Duration::from_millis(100));
        TypeSettings::new().retry(quick).max_attempts(3)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("tasks.db").display());
    let longhaul = Longhaul::open(&url).await?.register(Fetch).start().await?;

    let flaky = longhaul.submit::<Fetch>("flaky".to_owned()).await?;
    println!(
        "flaky: {} at attempt {}",
        flaky.result().await?,
        flaky.task().await?.attempt
    );

    for attempt in flaky.attempts().await? {
        println!("  attempt {} {}", attempt.attempt, attempt.end.as_str());
    }

    assert_eq!(flaky.attempts().await?.len(), 3);

    for (page, end, attempts) in [
        ("down", Status::DeadLetter, 3),
        ("missing", Status::Failed, 1),
    ] {
        let handle = longhaul.submit::<Fetch>(page.to_owned()).await?;
        let Err(NoResult::Ended { status, error }) = handle.result().await else {
            anyhow::bail!("{page} should not have a result");
        };
        let message = error.map(|error| error.message).unwrap_or_default();
        println!(
            "{page}: {} after {attempts} attempts: {message}",
            status.as_str()
        );
        assert_eq!((status, handle.task().await?.attempt), (end, attempts));
    }

    longhaul.stop().await;
    Ok(())
}
