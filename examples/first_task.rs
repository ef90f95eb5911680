//! The first task: define it as a type, submit it, wait for its result.
//!
//! Run it with `cargo run -p longhaul --example first_task`.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use longhaul::{Context, JsonSchema, Longhaul, Outcome, Progress, Task};
use serde::{Deserialize, Serialize};

/// The parameters. They are stored as JSON, and the schema describes them to other programs.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Text {
    text: String,
}

struct CountWords;

impl Task for CountWords {
    const TYPE: &'static str = "count_words";
    type Params = Text;
    type Output = usize;

    async fn run(&self, ctx: Context<Self>) -> Outcome<usize> {
        ctx.info(format!("counting {} bytes", ctx.params.text.len()));
        let words = ctx.params.text.split_whitespace().count();
        ctx.progress(Progress::percent(100.0).message("counted"))
            .await?;
        Ok(words)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // A program uses sqlite://tasks.db, postgres://… or mysql://… here.
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("tasks.db").display());
    let longhaul = Longhaul::open(&url)
        .await?
        .register(CountWords)
        .start()
        .await?;

    let params = Text {
        text: "no task is lost".to_owned(),
    };
    let handle = longhaul
        .submit::<CountWords>(params)
        .owner("u-1")
        .priority(7)
        .await?;

    println!("submitted {}", handle.id());

    let words = handle.result().await?;
    println!("it has {words} words");
    assert_eq!(words, 4);

    longhaul.stop().await;
    Ok(())
}
