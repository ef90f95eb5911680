//! The files under `deploy` are complete, and every option and variable in them is valid.

mod compose;
mod kubernetes;
mod systemd;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_cli::config::{self, Config, Sources};
use serde_json::Value;

use crate::trial::{once, plain};
use crate::{
    database::{Backend, Database},
    program::process::Process,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = once![is_ready_succeeds_only_for_a_node_that_answers];
    trials.extend(plain![wrong_options_and_variables_are_detected]);
    trials.extend(compose::trials());
    trials.extend(kubernetes::trials());
    trials.extend(systemd::trials());
    trials
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The documents of a YAML file.
fn documents(path: &str) -> Vec<Value> {
    let read = serde_saphyr::from_multiple(&read(path));
    read.unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(|text| text.as_str().expect("a text"))
        .collect()
}

/// Whether the program accepts this command line. With `--help` at its end, it parses all of it and
/// does nothing.
fn accepts(arguments: &[&str]) -> Result<(), String> {
    let help = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(arguments)
        .arg("--help")
        .env_clear()
        .output()
        .unwrap();
    if help.status.success() {
        Ok(())
    } else {
        let error = String::from_utf8_lossy(&help.stderr);
        Err(format!("{arguments:?}: {error}"))
    }
}

/// The configuration that these variables make. The program must know each of them.
fn configured(variables: &BTreeMap<String, String>) -> Result<Config, String> {
    let document = config::document();
    let is_ours = |name: &String| name.starts_with("LONGHAUL_");
    let is_known = |name: &String| name.contains("__") || document.contains(&format!("`{name}`"));

    if let Some(name) = variables
        .keys()
        .find(|name| !is_ours(name) || !is_known(name))
    {
        return Err(format!("{name} is not a variable of the program"));
    }

    let variables = variables.clone().into_iter().collect();
    let config = config::load(&Sources {
        variables,
        ..Sources::default()
    })
    .map_err(|error| format!("{error:#}"))?;

    config
        .check_listening()
        .map_err(|error| error.to_string())?;
    Ok(config)
}

/// The longest time that a node with this configuration takes to stop, with a margin.
fn stop_takes(config: &Config) -> Duration {
    config.http.drain.0 + config.worker.drain.0 + Duration::from_secs(10)
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs(
        text.trim_end_matches('s')
            .parse()
            .unwrap_or_else(|_| panic!("{text} is not in seconds")),
    )
}

fn wrong_options_and_variables_are_detected() {
    assert_eq!(accepts(&["serve", "--roles", "api"]), Ok(()));
    assert!(
        accepts(&["serve", "--roles", "apis"])
            .unwrap_err()
            .contains("apis")
    );
    assert!(
        accepts(&["serve", "--rolls", "api"])
            .unwrap_err()
            .contains("--rolls")
    );

    assert!(accepts(&["migrat"]).unwrap_err().contains("migrat"));
    let set = |name: &str, value: &str| {
        configured(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
    };
    assert!(set("LONGHAUL_STORE", "postgres://a@b/c").is_ok());

    for (name, value) in [
        ("LONGHAUL_BROOKER", "amqp://a@b/c"),
        ("LONGHAUL_SLOTS", "2"),
        ("LONGHAUL_WORKER__SLOT", "2"),
        ("LONGHAUL_WORKER__SLOTS", "two"),
        ("LONGHAUL_LISTEN", "0.0.0.0:7080"),
        ("STORE", "sqlite://x"),
    ] {
        assert!(set(name, value).is_err(), "{name}={value}");
    }
}

async fn is_ready_succeeds_only_for_a_node_that_answers() {
    let database = Database::make(Backend::Sqlite).await;
    let node: Process = database.start(&["serve", "--samples"]).await;
    let port = node.url("").rsplit_once(':').unwrap().1.to_owned();

    let is_ready = || {
        Command::new(root().join("deploy/is-ready"))
            .arg(&port)
            .output()
            .unwrap()
            .status
            .success()
    };
    assert!(is_ready());

    node.stop().await;
    assert!(!is_ready());
}
