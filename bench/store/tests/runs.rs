//! The bare loops send the store's own statements, with parameters of their own: when a statement changes, they must follow.

use std::process::Command;

#[test]
fn a_quick_run_drains_what_it_has_inserted_on_every_database() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul-bench-store"));
    let ran = command
        .args(["--quick", "sqlite", "postgres", "mysql", "throughput"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success(),
        "{told}\n{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    for database in ["sqlite", "postgres", "mysql"] {
        assert!(
            told.contains(&format!(
                "| {database} | drain, beside the same statements |"
            )),
            "{told}"
        );
    }
}
