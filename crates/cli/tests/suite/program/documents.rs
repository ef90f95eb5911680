//! Runs the shell commands of the documents as a reader would copy them, and compares what they
//! print with what the documents say.
//!
//! All `sh` blocks of a document are one script. A `text` block after one has lines that its output
//! must have; words with digits (ids, ages, sizes) compare as equal, and `…` matches anything.

use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use libtest_mimic::Trial;
use tokio::{io::AsyncReadExt as _, process::Command};

use crate::database::{Backend, Database};
use crate::server::setting;
use crate::trial::{once, plain};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = once![
        the_quick_start_does_what_it_says,
        the_readme_does_what_it_says,
        the_guide_to_deployment_does_what_it_says
    ];
    trials.extend(plain![
        words_with_digits_compare_as_equal,
        dots_match_anything
    ]);
    trials
}

/// A document takes seconds, on a busy machine more.
const DEADLINE: Duration = Duration::from_secs(300);

const END: &str = "echo '=== end of block'";

/// Commands that build or fetch: a test has the program already.
const NOT_RUN: [&str; 4] = ["git clone", "make ", "cargo ", "export PATH"];

/// A block of commands, and the lines that they should print.
#[derive(Debug, Default)]
struct Block {
    commands: String,
    printed: Vec<String>,
}

/// The blocks of a document that can be run, in their order.
fn blocks(document: &str) -> Vec<Block> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(document);
    let text = std::fs::read_to_string(path).unwrap();
    let mut blocks: Vec<Block> = Vec::new();

    // Every other piece is code, which starts with its kind.
    for code in text.split("\n```").skip(1).step_by(2) {
        let (kind, body) = code.split_once('\n').unwrap_or((code, ""));
        if kind == "sh" {
            let is_run = |line: &&str| !NOT_RUN.iter().any(|start| line.starts_with(start));
            let commands: Vec<&str> = body.lines().filter(is_run).collect();
            blocks.push(Block {
                commands: commands.join("\n"),
                printed: Vec::new(),
            });
        } else if kind == "text" {
            let printed = body.lines().map(alike);
            blocks
                .last_mut()
                .expect("commands before what they print")
                .printed
                .extend(printed);
        }
    }

    blocks
}

/// A line in which each word with a digit is `#`, and all space is one space.
fn alike(line: &str) -> String {
    let is_word = |letter: char| letter.is_alphanumeric() || "-_%.:+".contains(letter);
    let mut text = String::new();
    for piece in line.split_inclusive(|letter| !is_word(letter)) {
        let word = piece.trim_end_matches(|letter| !is_word(letter));
        let is_number = word.contains(|letter: char| letter.is_ascii_digit());
        text += if is_number { "#" } else { word };
        text += &piece[word.len()..];
    }

    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace("# #", "#").replace("# #", "#")
}

/// Whether a line is what the document has, in which `…` stands for anything.
fn fits(line: &str, wanted: &str) -> bool {
    let Some((start, rest)) = wanted.split_once('…') else {
        return line == wanted;
    };
    let (middle, end) = rest.rsplit_once('…').unwrap_or(("", rest));
    let between = line
        .strip_prefix(start.trim_end())
        .and_then(|line| line.strip_suffix(end.trim_start()));

    between.is_some_and(|between| between.contains(middle.trim()))
}

/// A shell for the commands: an empty folder, the program on the path, an otherwise empty
/// environment.
fn shell(script: &str, folder: &Path, address: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_longhaul")).parent().unwrap();
    let path = std::env::vars()
        .find(|(name, _)| name == "PATH")
        .map(|(_, value)| value)
        .unwrap_or_default();
    let mut bash = Command::new("bash");

    bash.args(["-c", script])
        .current_dir(folder)
        .env_clear()
        .process_group(0);
    bash.env("PATH", format!("{}:{path}", program.display()))
        .env("LONGHAUL_URL", format!("http://{address}"));
    bash.stdin(Stdio::null()).stdout(Stdio::piped());

    bash
}

/// Runs a script to its end, kills what it started, and returns what it printed.
async fn output_of(script: &str, address: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut bash = shell(script, folder.path(), address).spawn().unwrap();
    let group = format!("-{}", bash.id().expect("it has just started"));
    let mut out = bash.stdout.take().unwrap();
    let mut text = Vec::new();
    let reading = async {
        let _ = out.read_to_end(&mut text).await;
    };
    let in_time = tokio::time::timeout(DEADLINE, reading).await.is_ok();

    let _ = Command::new("kill")
        .args(["-9", "--", &group])
        .stderr(Stdio::null())
        .status()
        .await;
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(in_time, "it did not end in time; until then:\n{text}");

    text
}

/// Runs a document. `others` replaces words that only a reader can know, such as the address of a
/// server.
async fn run(document: &str, before: &str, others: &[(&str, String)]) {
    let blocks = blocks(document);
    assert!(
        blocks.iter().any(|block| !block.printed.is_empty()),
        "{document} has no commands with an output"
    );
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();

    let address = format!("127.0.0.1:{port}");
    let mut script = format!(
        "set -eu -o pipefail\nexec 2>&1\ntrap 'kill -9 $(jobs -p) || true' EXIT\n{before}\n{END}\n"
    );
    for block in &blocks {
        script += &format!("{}\n{END}\n", block.commands);
    }

    for (word, other) in others {
        assert!(script.contains(word), "{document} has no {word}");
        script = script.replace(word, other);
    }

    let script = script.replace("127.0.0.1:7080", &address);
    let script = script.replace("longhaul dev", &format!("longhaul dev --listen {address}"));
    let output = output_of(&script, &address).await;
    let outputs: Vec<&str> = output.split("=== end of block\n").skip(1).collect();
    assert_eq!(
        outputs.len(),
        blocks.len() + 1,
        "{document}: a command failed; the whole output:\n{output}"
    );

    for (block, printed) in blocks.iter().zip(&outputs) {
        let lines: Vec<String> = printed.lines().map(alike).collect();
        for line in &block.printed {
            let commands = &block.commands;
            let is_there = lines.iter().any(|printed| fits(printed, line));
            assert!(
                is_there,
                "{document}:\n{commands}\nshould print {line:?}, but prints\n{printed}"
            );
        }
    }
}

async fn the_quick_start_does_what_it_says() {
    // Two seconds are enough for a reader; on a busy machine the task may start later.
    let wait = "\nuntil longhaul get $id --json | grep '\"checkpoint\":[1-9]' > /dev/null; do \
         sleep 0.1; done\n";
    run(
        "docs/quickstart.md",
        "",
        &[("\nsleep 2\n", wait.to_owned())],
    )
    .await;
}

async fn the_readme_does_what_it_says() {
    let ready =
        "curl -sf --retry 60 --retry-connrefused --retry-delay 1 http://127.0.0.1:7080/readyz";
    // A reader asks a moment later; on a busy machine the task may start later still.
    let why = r"curl -sw '\n' http://127.0.0.1:7080/api/tasks/$id/why";
    let until_it_runs = format!("until {why} | grep '\"reason\":\"running\"'; do sleep 0.1; done");
    run(
        "README.md",
        &format!("longhaul dev > log 2>&1 &\n{ready}"),
        &[(why, until_it_runs)],
    )
    .await;
}

/// A fleet on the servers of the tests, under its own names.
async fn the_guide_to_deployment_does_what_it_says() {
    let database = Database::make(Backend::Postgres).await;
    let server = |variable: &str| {
        setting(variable).unwrap_or_else(|| panic!("{variable} is not set: run `make test`"))
    };
    let namespace = database.url.rsplit_once('/').expect("a database").1;
    let names = format!(
        "export LONGHAUL_BROKER__NAMESPACE={namespace} LONGHAUL_REDIS__NAMESPACE={namespace}"
    );

    let others = [
        (
            "postgres://longhaul:$POSTGRES_PASSWORD@127.0.0.1:5432/longhaul",
            database.url.clone(),
        ),
        (
            "amqp://longhaul:$RABBITMQ_PASSWORD@127.0.0.1:5672/longhaul",
            server("LONGHAUL_TEST_RABBITMQ"),
        ),
        (
            "redis://:$REDIS_PASSWORD@127.0.0.1:6379/0",
            server("LONGHAUL_TEST_REDIS"),
        ),
    ];

    run("docs/deployment.md", &names, &others).await;
}

fn words_with_digits_compare_as_equal() {
    assert_eq!(
        alike("01a1-e08e  sample.fail  RUNNING   1/5   2m 3s"),
        "# sample.fail RUNNING #/#"
    );
    assert_eq!(alike("\"attempt\": 3,"), "\"attempt\": #,");
}

fn dots_match_anything() {
    assert!(fits(
        "# crashed vm # ago crash: it died",
        "# crashed … crash: it died"
    ));
    assert!(fits(
        "# crashed vm # ago crash: it died",
        "… crashed … died"
    ));
    assert!(
        !fits("# completed vm # ago", "# crashed … ago") && !fits("# crashed", "# crashed … ago")
    );
}
