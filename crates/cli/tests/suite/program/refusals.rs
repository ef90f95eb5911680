//! What a node refuses to start with.

use libtest_mimic::Trial;

use crate::trial::once;
use crate::{
    database::{Backend, Database},
    program::process::answer,
};

pub(crate) fn trials() -> Vec<Trial> {
    once![
        a_node_does_not_listen_to_the_world_by_mistake,
        a_wrong_configuration_is_told_before_anything_starts,
        a_store_that_is_away_is_told_without_its_password
    ]
}

async fn a_node_does_not_listen_to_the_world_by_mistake() {
    let database = Database::make(Backend::Sqlite).await;
    let told = database
        .run(&["serve", "--listen", "0.0.0.0:0"])
        .await
        .failed();
    assert!(told.contains("http.allow_plain"), "{told}");
    let mut open = database.program(&["serve", "--listen", "0.0.0.0:0"]);
    open.env("LONGHAUL_HTTP__ALLOW_PLAIN", "true")
        .env("LONGHAUL_IDENTITY__MODE", "dev");
    let told = answer(open).await.failed();
    assert!(told.contains("identity.mode"), "{told}");
    assert!(
        !database.folder.path().join("data").exists(),
        "nothing was made"
    );
}

async fn a_wrong_configuration_is_told_before_anything_starts() {
    let database = Database::make(Backend::Sqlite).await;
    for (name, value, wanted) in [
        (
            "LONGHAUL_STROE",
            "sqlite://x",
            "did you mean LONGHAUL_STORE?",
        ),
        (
            "LONGHAUL_BROKER",
            "kafka://u:s3cret@mq",
            "allowed: local, amqp://",
        ),
        ("LONGHAUL_WORKER__DRAIN", "soon", "PT30S"),
    ] {
        let mut command = database.program(&["serve"]);
        command.env(name, value);
        let told = answer(command).await.failed();
        assert!(told.contains(wanted) && !told.contains("s3cret"), "{told}");
    }
    let told = database
        .run(&["serve", "--config", "missing.toml"])
        .await
        .failed();
    assert!(told.contains("missing.toml cannot be read"), "{told}");
    assert!(
        !database.folder.path().join("data").exists(),
        "nothing was made"
    );
}

async fn a_store_that_is_away_is_told_without_its_password() {
    let database = Database::make(Backend::Sqlite).await;
    let mut command = database.program(&["migrate"]);
    command.env("LONGHAUL_STORE", "mysql://u:s3cret@127.0.0.1:1/tasks");
    let told = answer(command).await.failed();
    assert!(
        told.contains("mysql://u:***@127.0.0.1:1") && !told.contains("s3cret"),
        "{told}"
    );
}
