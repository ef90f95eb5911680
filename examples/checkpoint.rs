//! Checkpoints: a process dies in the middle of a long task, and the next one continues from there.
//!
//! Run it with `cargo run -p longhaul --example checkpoint`. It starts itself a
//! second time, as the process that dies.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use longhaul::{Context, JsonSchema, Longhaul, Outcome, Progress, Task};
use serde::{Deserialize, Serialize};

/// What the next attempt needs.
#[derive(Serialize, Deserialize, JsonSchema, Default)]
struct Done {
    pages: usize,
}

struct Translate {
    /// The page after which the process dies, as in a power cut.
    dies_after: Option<usize>,
}

impl Task for Translate {
    const TYPE: &'static str = "translate";
    type Params = usize;
    type Output = usize;

    async fn run(&self, ctx: Context<Self>) -> Outcome<usize> {
        let mut done: Done = ctx.checkpoint()?.unwrap_or_default();
        let started_after = done.pages;
        while done.pages < ctx.params {
            done.pages += 1;
            println!("attempt {}: page {}", ctx.attempt(), done.pages);

            // The checkpoint is durable when this returns. `ctx.state()` saves by itself every few
            // seconds.
            ctx.save_checkpoint(&done).await?;
            if self.dies_after == Some(done.pages) {
                std::process::exit(9);
            }

            ctx.progress(Progress::of(done.pages, ctx.params)).await?;
        }

        Ok(started_after)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if let Some(url) = std::env::args().nth(1) {
        let dying = Translate {
            dies_after: Some(3),
        };
        let longhaul = Longhaul::open(&url).await?.register(dying).start().await?;
        longhaul
            .submit::<Translate>(5)
            .idempotency_key("the book")
            .await?
            .result()
            .await?;

        anyhow::bail!("the process should have died");
    }

    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("tasks.db").display());
    let died = tokio::process::Command::new(std::env::current_exe()?)
        .arg(&url)
        .status()
        .await?;

    println!("the first process died: {died}");
    assert_eq!(died.code(), Some(9));

    // The same key leads to the same task, whether or not the first submit succeeded.
    let longhaul = Longhaul::open(&url)
        .await?
        .register(Translate { dies_after: None })
        .start()
        .await?;
    let handle = longhaul
        .submit::<Translate>(5)
        .idempotency_key("the book")
        .await?;

    let started_after = handle.result().await?;
    println!("the second process continued after page {started_after}");
    assert_eq!((started_after, handle.task().await?.crash_count), (3, 1));
    longhaul.stop().await;

    Ok(())
}
