//! `migrate` reports pending migrations, runs them, and reports that there is nothing to do.

use libtest_mimic::Trial;

use crate::database::{Backend, Database};
use crate::trial::on_every_store;

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![migrate_updates_the_schema]
}

async fn migrate_updates_the_schema(backend: Backend) {
    let database = Database::make(backend).await;
    let output = database.run(&["migrate", "--check"]).await.failed();
    assert!(
        output.contains("longhaul migrate") || output.contains("pending 0001 initial"),
        "{output}"
    );
    let mut off = database.program(&["serve"]);

    off.env("LONGHAUL_STORE__MIGRATE", "false");
    let refused = crate::program::process::answer(off).await.failed();
    assert!(refused.contains("run `longhaul migrate`"), "{refused}");
    let done = database.run(&["migrate"]).await.ok();
    assert!(
        done.contains("done 0001 initial") && done.contains("the schema is current"),
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
