//! `migrate` tells, does, and tells that there is nothing to do.

use libtest_mimic::Trial;

use crate::database::{Backend, Database};
use crate::trial::on_every_store;

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![a_schema_is_brought_up_to_date]
}

async fn a_schema_is_brought_up_to_date(backend: Backend) {
    let database = Database::make(backend).await;
    let told = database.run(&["migrate", "--check"]).await.failed();
    assert!(
        told.contains("longhaul migrate") || told.contains("pending 0001 foundation"),
        "{told}"
    );
    let mut off = database.program(&["serve"]);
    off.env("LONGHAUL_STORE__MIGRATE", "false");
    let refused = crate::program::process::answer(off).await.failed();
    assert!(refused.contains("run `longhaul migrate`"), "{refused}");
    let done = database.run(&["migrate"]).await.ok();
    assert!(
        done.contains("done 0001 foundation") && done.contains("the schema is current"),
        "{done}"
    );
    assert!(
        database
            .run(&["migrate", "--check"])
            .await
            .ok()
            .contains("the schema is current")
    );
    assert!(!database.run(&["migrate"]).await.ok().contains("done"));
}
