//! Transactions: a task is submitted in the transaction that writes its data. Both commit, or
//! neither does.
//!
//! Run it with `cargo run -p longhaul --example transaction`.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use longhaul::{Context, Longhaul, Outcome, Task};
use sqlx::{Connection as _, SqliteConnection};

struct SendInvoice;

impl Task for SendInvoice {
    const TYPE: &'static str = "send_invoice";
    type Params = i64;
    type Output = String;

    async fn run(&self, ctx: Context<Self>) -> Outcome<String> {
        Ok(format!("invoice of order {}", ctx.params))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    let longhaul = Longhaul::open(&url)
        .await?
        .register(SendInvoice)
        .start()
        .await?;

    // The program's own connection to the same database; sqlx transactions of PostgreSQL and MySQL
    // work the same.
    let mut shop = SqliteConnection::connect(&url).await?;
    sqlx::query("CREATE TABLE orders (id integer PRIMARY KEY)")
        .execute(&mut shop)
        .await?;

    // On SQLite the transaction must begin as a writer. One that reads first and writes later fails
    // if Longhaul has written in between. On PostgreSQL and MySQL use `begin()`.
    let mut abandoned = shop.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("INSERT INTO orders (id) VALUES (1)")
        .execute(&mut *abandoned)
        .await?;
    let gone = longhaul
        .submit_in(&mut abandoned, longhaul.submit::<SendInvoice>(1))
        .await?;

    abandoned.rollback().await?;
    let Err(error) = longhaul.task(gone.id()).await else {
        anyhow::bail!("the task should not exist")
    };
    println!("rolled back: {error}");

    let mut order = shop.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("INSERT INTO orders (id) VALUES (2)")
        .execute(&mut *order)
        .await?;
    let handle = longhaul
        .submit_in(&mut order, longhaul.submit::<SendInvoice>(2))
        .await?;

    order.commit().await?;

    // Longhaul does not notice the commit. Its workers poll now and then, and at once after this.
    longhaul.wake();
    let sent = handle.result().await?;

    println!("committed: {sent}");
    assert_eq!(sent, "invoice of order 2");

    let orders: Vec<i64> = sqlx::query_scalar("SELECT id FROM orders")
        .fetch_all(&mut shop)
        .await?;
    assert_eq!(orders, [2]);
    shop.close().await?;
    longhaul.stop().await;

    Ok(())
}
