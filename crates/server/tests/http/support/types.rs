//! Task types for behaviour that no sample has.

use std::time::Duration;

use longhaul::{Builder, Job, Outcome, Stop, TypeSettings};

pub(crate) fn register(builder: Builder) -> Builder {
    let builder = builder
        .register_fn("test.rewrite", at_once(), rewrite)
        .register_fn("test.end", at_once(), end);
    builder
        .register_fn("test.crash", at_once(), crash)
        .register_fn("test.files", at_once(), files)
}

/// Settings with immediate retries.
fn at_once() -> TypeSettings {
    let mut settings = TypeSettings::default();
    settings.retry.initial_ms = 1;
    settings
}

/// Writes the whole output in each attempt, and fails all but the last.
async fn rewrite(attempts: u32, job: Job) -> Outcome<()> {
    for part in ["a", "b"] {
        job.emit(&format!("attempt {}, {part}", job.attempt()))
            .await?;
    }

    if job.attempt() < attempts {
        Err(Stop::retryable("not yet"))
    } else {
        Ok(())
    }
}

/// Writes something, then ends as its parameter says.
async fn end(how: String, job: Job) -> Outcome<()> {
    job.emit("text").await?;
    match how.as_str() {
        "complete" => Ok(()),
        "fail" => Err(Stop::fatal("as requested")),
        "exhaust" => Err(Stop::retryable("as requested")),
        _ => job.sleep(Duration::from_secs(600)).await,
    }
}

/// Stops after its checkpoint, and continues from it after a manual retry.
async fn crash(_: (), job: Job) -> Outcome<()> {
    if let Some(offset) = job.checkpoint::<u64>()? {
        job.resume_output(offset).await?;
        job.emit("three again").await?;
        job.emit("four").await?;
        return Ok(());
    }

    job.emit("one").await?;
    let offset = job.emit("two").await?;
    job.save_checkpoint(&offset).await?;
    job.emit("three").await?;

    Err(Stop::retry_after(
        "as if the process had died",
        Duration::from_secs(3_600),
    ))
}

/// Stores a file in each of two attempts, and fails the first.
async fn files(_: (), job: Job) -> Outcome<serde_json::Value> {
    let attempt = job.attempt();
    let first = job.checkpoint::<String>()?;
    let text = format!("text of attempt {attempt}");
    let stored = job
        .store_artifact(
            &format!("of attempt {attempt}.txt"),
            "text/plain",
            text.as_bytes(),
        )
        .await?;

    match first {
        Some(first) => Ok(serde_json::json!({ "first": first, "second": stored.url })),
        None => {
            job.save_checkpoint(&stored.url).await?;
            Err(Stop::retryable("not yet"))
        }
    }
}
