//! The examples are the documents of the facade, so they must do what they say: each is run as a
//! user runs it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use libtest_mimic::Trial;
use tokio::process::Command;

/// Each example, and a line that it prints when it has shown what it shows.
const EXAMPLES: &[(&str, &str)] = &[
    ("first_task", "it has 4 words"),
    (
        "retry",
        "down: DEAD_LETTER after 3 attempts: the server is down",
    ),
    ("cancel", "cancelled, without a result"),
    ("children", "6 words, 1 unreadable page"),
    ("checkpoint", "the second process continued after page 3"),
    ("transaction", "committed: invoice of order 2"),
    ("subscriber", "both events were received"),
    ("rate_limit", "7 calls for 6 summaries"),
    ("testing", "completed at attempt 4 with 5 calls"),
];

/// None takes a second on a machine that is not busy.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    let one = |(name, line): &'static (&str, &str)| {
        Trial::test(format!("examples::{name}"), move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(run(name, line));
            Ok(())
        })
    };

    let mut trials: Vec<Trial> = EXAMPLES.iter().map(one).collect();
    trials.push(Trial::test("examples::every_one_is_run", || {
        every_one_is_run();
        Ok(())
    }));

    trials
}

async fn run(name: &str, line: &str) {
    let program = program(name);
    let mut command = Command::new(&program);
    if let Some(broker) = setting("LONGHAUL_TEST_RABBITMQ") {
        command.env("LONGHAUL_BROKER", broker);
    }

    let output = command.kill_on_drop(true).output();
    let output = match tokio::time::timeout(DEADLINE, output).await {
        Ok(output) => output.unwrap_or_else(|error| panic!("{}: {error}", program.display())),
        Err(_) => panic!("the example {name} had not ended by itself after {DEADLINE:?}"),
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);

    assert!(
        output.status.success(),
        "{name} ended with {}:\n{printed}{errors}",
        output.status
    );
    assert!(
        printed.lines().any(|said| said.starts_with(line)),
        "{name} did not say {line:?}:\n{printed}{errors}"
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "where these tests learn of their servers"
)]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Beside this program's folder, where cargo puts it.
fn program(name: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let folder = this
        .parent()
        .and_then(Path::parent)
        .unwrap()
        .join("examples");
    let program = folder
        .join(name)
        .with_extension(std::env::consts::EXE_EXTENSION);

    assert!(
        program.exists(),
        "{} is missing: cargo build -p longhaul --features fleet,testing --examples",
        program.display()
    );

    program
}

fn every_one_is_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut files: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".rs"))
        .collect();

    files.sort();
    let mut run: Vec<String> = EXAMPLES
        .iter()
        .map(|(name, _)| format!("{name}.rs"))
        .collect();

    run.sort();
    assert_eq!(
        files, run,
        "each file in examples/ is registered in Cargo.toml and in EXAMPLES"
    );
}
