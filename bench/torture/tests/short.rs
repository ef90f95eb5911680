//! The short profiles, about a minute each; `make torture` runs the long ones.

#![expect(clippy::unwrap_used, reason = "a test: what is not as it must be stops it")]

use std::process::Command;

fn torture(store: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torture"));
    command.args(["run", "--store", store, "--tasks", "1500", "--seconds", "28", "--profile", "short", "--seed", "1"]);
    let ran = command.args(["--name", &format!("test-{store}")]).output().unwrap();
    let told = String::from_utf8_lossy(&ran.stdout);
    let figures = told.lines().last().unwrap_or_default();
    assert!(ran.status.success(), "{told}\n{}", String::from_utf8_lossy(&ran.stderr));
    assert!(figures.starts_with(&format!("torture store={store} ")) && figures.ends_with("verdict=ok"), "{figures}");
}

#[test]
fn sqlite_keeps_its_promises_under_kills_and_freezes() {
    torture("sqlite");
}

#[test]
fn postgres_keeps_its_promises_under_kills_and_freezes_of_nodes_and_server() {
    torture("postgres");
}
