//! Children: a task splits its work, and a finish step combines the results.
//!
//! Run it with `cargo run -p longhaul --example children`.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use longhaul::{Children, Context, JsonSchema, Longhaul, Outcome, Status, Stop, Task};
use serde::{Deserialize, Serialize};

struct CountPage;

impl Task for CountPage {
    const TYPE: &'static str = "count_page";
    type Params = String;
    type Output = usize;

    async fn run(&self, ctx: Context<Self>) -> Outcome<usize> {
        if ctx.params.is_empty() {
            return Err(Stop::fatal("the page is empty"));
        }
        Ok(ctx.params.split_whitespace().count())
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Book {
    word_count: usize,
    unreadable_pages: usize,
}

struct CountBook;

impl Task for CountBook {
    const TYPE: &'static str = "count_book";
    const FINISH_STEP: bool = true;
    type Params = Vec<String>;
    type Output = Book;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Book> {
        ctx.submit_all::<CountPage>(ctx.params.clone()).await?;
        // The task occupies no slot while its children run, here or on other nodes.
        Err(Stop::wait_for_children())
    }

    async fn finish(&self, _ctx: Context<Self>, children: Children) -> Outcome<Book> {
        Ok(Book {
            word_count: children.results::<CountPage>()?.iter().sum(),
            unreadable_pages: children.failed().count(),
        })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("tasks.db").display());
    let longhaul = Longhaul::open(&url)
        .await?
        .register(CountBook)
        .register(CountPage)
        .start()
        .await?;

    let pages = ["call me", "", "ishmael some years ago"]
        .map(str::to_owned)
        .to_vec();
    let handle = longhaul.submit::<CountBook>(pages).await?;
    let book = handle.result().await?;

    println!(
        "{} words, {} unreadable page",
        book.word_count, book.unreadable_pages
    );
    assert_eq!(
        book,
        Book {
            word_count: 6,
            unreadable_pages: 1
        }
    );

    assert_eq!(
        handle.status().await?,
        Status::CompletedWithErrors,
        "one child failed"
    );

    longhaul.stop().await;
    Ok(())
}
