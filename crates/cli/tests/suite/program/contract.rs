//! The API against its document: Schemathesis makes valid and invalid requests from the OpenAPI
//! document and checks the answers against it. No 5xx, no undocumented answer, nothing for callers
//! without a token.

use std::path::Path;

use libtest_mimic::Trial;
use longhaul::server::route_table;
use tokio::process::Command;

use crate::database::{Backend, Database};
use crate::program::running::Running;
use crate::trial::on_every_store;
use crate::{client::Call, server::setting};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![every_operation_matches_its_document]
}

/// Requests for each operation. `LONGHAUL_TEST_EXAMPLES` overrides it.
const EXAMPLES: &str = "20";
/// Live routes, whose answers do not end; the tests of the server cover them.
const LIVE: &str = "(/events|/stream|/ws)$";

async fn every_operation_matches_its_document(store: Backend) {
    let database = Database::make(store).await;
    let token = database.token("u-1").await;
    let node = Running::spawn(&database, &["serve", "--samples"], &token, &[]).await;
    let tool = setting("LONGHAUL_TEST_SCHEMATHESIS")
        .expect("LONGHAUL_TEST_SCHEMATHESIS: run the tests with make test");
    let examples = setting("LONGHAUL_TEST_EXAMPLES").unwrap_or_else(|| EXAMPLES.to_owned());
    let mut command = Command::new(tool);

    // From a file: read from its own route, the document would leave that route out.
    let document = node.send(Call::get("/api/openapi.json")).await;
    std::fs::write(database.folder.path().join("openapi.json"), document.text).unwrap();
    command.args([
        "run",
        "openapi.json",
        "--url",
        &format!("http://{}", node.address),
    ]);

    // The seed fixes the requests of a run. Another number of examples gives other requests.
    command.args([
        "--max-examples",
        &examples,
        "--seed",
        &examples,
        "--request-timeout",
        "20",
    ]);

    command.args(["--exclude-path-regex", LIVE]);
    // DELETE cancels: the task stays, so that its end can be read.
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

    let output = String::from_utf8_lossy(&ended.stdout).into_owned()
        + &String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{output}");

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
        output.contains(&format!("Tested: {wanted}\n")),
        "all operations but the live ones: {output}"
    );
}
