//! Configurations that a node refuses to start with.

use libtest_mimic::Trial;

use crate::trial::once;
use crate::{
    database::{Backend, Database},
    program::process::answer,
};

pub(crate) fn trials() -> Vec<Trial> {
    once![
        a_node_does_not_listen_publicly_by_mistake,
        a_wrong_configuration_is_refused_before_anything_starts,
        an_unreachable_store_is_reported_without_its_password
    ]
}

async fn a_node_does_not_listen_publicly_by_mistake() {
    let database = Database::make(Backend::Sqlite).await;
    let output = database
        .run(&["serve", "--listen", "0.0.0.0:0"])
        .await
        .failed();
    assert!(output.contains("http.allow_plain"), "{output}");
    let mut open = database.program(&["serve", "--listen", "0.0.0.0:0"]);

    open.env("LONGHAUL_HTTP__ALLOW_PLAIN", "true")
        .env("LONGHAUL_IDENTITY__MODE", "dev");
    let output = answer(open).await.failed();
    assert!(output.contains("identity.mode"), "{output}");
    assert!(
        !database.folder.path().join("data").exists(),
        "nothing was made"
    );
}

async fn a_wrong_configuration_is_refused_before_anything_starts() {
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
        let output = answer(command).await.failed();
        assert!(
            output.contains(wanted) && !output.contains("s3cret"),
            "{output}"
        );
    }

    let output = database
        .run(&["serve", "--config", "missing.toml"])
        .await
        .failed();
    assert!(output.contains("missing.toml cannot be read"), "{output}");
    assert!(
        !database.folder.path().join("data").exists(),
        "nothing was made"
    );
}

async fn an_unreachable_store_is_reported_without_its_password() {
    let database = Database::make(Backend::Sqlite).await;
    let mut command = database.program(&["migrate"]);
    command.env("LONGHAUL_STORE", "mysql://u:s3cret@127.0.0.1:1/tasks");
    let output = answer(command).await.failed();
    assert!(
        output.contains("mysql://u:***@127.0.0.1:1") && !output.contains("s3cret"),
        "{output}"
    );
}
