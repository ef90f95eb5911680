//! The bare loops send the store's own statements with their own parameters. When a statement
//! changes, they must follow.

use std::process::Command;

#[test]
fn a_quick_run_drains_all_its_tasks_on_every_database() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul-bench-store"));
    let ran = command
        .args(["--quick", "sqlite", "postgres", "mysql", "throughput"])
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&ran.stdout);

    assert!(
        ran.status.success(),
        "{output}\n{}",
        String::from_utf8_lossy(&ran.stderr)
    );

    for database in ["sqlite", "postgres", "mysql"] {
        assert!(
            output.contains(&format!(
                "| {database} | drain, beside the same statements |"
            )),
            "{output}"
        );
    }
}
