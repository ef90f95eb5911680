//! The API beside its document: Schemathesis makes requests from the OpenAPI document, good and bad ones, and holds the answers
//! against it. No 5xx, no answer that the document does not know, nothing for callers without a token.

use std::path::Path;

use libtest_mimic::Trial;
use longhaul::server::route_table;
use tokio::process::Command;

use crate::database::{Backend, Database};
use crate::http::{client::Call, server::setting};
use crate::program::running::Running;
use crate::trial::on_every_store;

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![every_operation_is_as_its_document_says]
}

/// Requests for each operation; `LONGHAUL_TEST_EXAMPLES` asks for more.
const EXAMPLES: &str = "20";
/// Routes that a client stays on: their answers do not end, and the tests of `http` have them.
const LIVE: &str = "(/events|/stream|/ws)$";

async fn every_operation_is_as_its_document_says(store: Backend) {
    let database = Database::make(store).await;
    let token = database.token("u-1").await;
    let node = Running::spawn(&database, &["serve", "--samples"], &token, &[]).await;
    let tool = setting("LONGHAUL_TEST_SCHEMATHESIS")
        .expect("LONGHAUL_TEST_SCHEMATHESIS: run the tests with make test");
    let examples = setting("LONGHAUL_TEST_EXAMPLES").unwrap_or_else(|| EXAMPLES.to_owned());
    let mut command = Command::new(tool);
    // From a file: the route of the document itself is left out when the document is read there.
    let document = node.send(Call::get("/api/openapi.json")).await;
    std::fs::write(database.folder.path().join("openapi.json"), document.text).unwrap();
    command.args([
        "run",
        "openapi.json",
        "--url",
        &format!("http://{}", node.address),
    ]);
    // The same requests in each run; a longer run draws others.
    command.args([
        "--max-examples",
        &examples,
        "--seed",
        &examples,
        "--request-timeout",
        "20",
    ]);
    command.args(["--exclude-path-regex", LIVE]);
    // DELETE cancels: the task stays, for everybody to see how it ended.
    command.args(["--exclude-checks", "use_after_free"]);
    let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/program/contract");
    command
        .env_clear()
        .env("PYTHONPATH", hooks)
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("LONGHAUL_TOKEN", &token);
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NO_COLOR", "1")
        .env("LANG", "C.UTF-8");
    let ended = command
        .current_dir(database.folder.path())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let told = String::from_utf8_lossy(&ended.stdout).into_owned()
        + &String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{told}");
    let is_live = |path: &str| {
        ["/events", "/stream", "/ws"]
            .iter()
            .any(|end| path.ends_with(end))
    };
    let wanted = route_table()
        .iter()
        .filter(|route| !is_live(route.path))
        .count();
    assert!(
        told.contains(&format!("Tested: {wanted}\n")),
        "all operations but the live ones: {told}"
    );
}
