//! `migrate` tells, does, and tells that there is nothing to do.

use crate::database::{Backend, Database};

async fn a_schema_is_brought_up_to_date(backend: Backend) {
    let database = Database::make(backend).await;
    let told = database.run(&["migrate", "--check"]).await.failed();
    assert!(told.contains("longhaul migrate") || told.contains("pending 0001 foundation"), "{told}");
    let mut off = database.program(&["serve"]);
    off.env("LONGHAUL_STORE__MIGRATE", "false");
    let refused = crate::process::answer(off).await.failed();
    assert!(refused.contains("run `longhaul migrate`"), "{refused}");
    let done = database.run(&["migrate"]).await.ok();
    assert!(done.contains("done 0001 foundation") && done.contains("the schema is current"), "{done}");
    assert!(database.run(&["migrate", "--check"]).await.ok().contains("the schema is current"));
    assert!(!database.run(&["migrate"]).await.ok().contains("done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_is_brought_up_to_date_on_sqlite() {
    a_schema_is_brought_up_to_date(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_is_brought_up_to_date_on_postgres() {
    a_schema_is_brought_up_to_date(Backend::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_is_brought_up_to_date_on_mysql() {
    a_schema_is_brought_up_to_date(Backend::MySql).await;
}
