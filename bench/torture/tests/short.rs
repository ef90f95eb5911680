//! The short profiles, about a minute each, and a fleet, about three; `make torture` runs the long ones.

#![expect(
    clippy::unwrap_used,
    reason = "a test: what is not as it must be stops it"
)]

use std::process::Command;

fn torture(store: &str, profile: &str, size: [&str; 2]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torture"));
    let [tasks, seconds] = size;
    command.args([
        "run",
        "--store",
        store,
        "--tasks",
        tasks,
        "--seconds",
        seconds,
        "--profile",
        profile,
        "--seed",
        "1",
    ]);
    let ran = command
        .args(["--name", &format!("test-{profile}-{store}")])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ran.stdout);
    let figures = told.lines().last().unwrap_or_default();
    assert!(
        ran.status.success(),
        "{told}\n{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    assert!(
        figures.contains(&format!("store={store} ")) && figures.ends_with("verdict=ok"),
        "{figures}"
    );
}

#[test]
fn sqlite_keeps_its_promises_under_kills_and_freezes() {
    torture("sqlite", "short", ["1500", "28"]);
}

#[test]
fn postgres_keeps_its_promises_under_kills_and_freezes_of_nodes_and_server() {
    torture("postgres", "short", ["1500", "28"]);
}

#[test]
fn a_fleet_keeps_its_promises_while_nodes_servers_and_networks_break() {
    torture("postgres", "fleet", ["20000", "150"]);
}
