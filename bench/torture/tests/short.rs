//! The short profiles, about a minute each, and a fleet, about three minutes. `make torture` runs
//! the long ones.

#![expect(clippy::unwrap_used, reason = "a test: a failed expectation stops it")]

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
    let output = String::from_utf8_lossy(&ran.stdout);
    let figures = output.lines().last().unwrap_or_default();

    assert!(
        ran.status.success(),
        "{output}\n{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    assert!(
        figures.contains(&format!("store={store} ")) && figures.ends_with("verdict=ok"),
        "{figures}"
    );
}

#[test]
fn sqlite_survives_kills_and_freezes_of_its_node() {
    torture("sqlite", "short", ["1500", "28"]);
}

#[test]
fn postgres_survives_kills_and_freezes_of_nodes_and_server() {
    torture("postgres", "short", ["1500", "28"]);
}

#[test]
fn a_fleet_survives_faults_of_nodes_servers_and_networks() {
    torture("postgres", "fleet", ["20000", "150"]);
}
