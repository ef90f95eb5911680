//! `deploy/systemd`: systemd itself checks the units.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use libtest_mimic::Trial;
use longhaul_cli::config::{self, Sources};

use super::{accepts, configured, read, root, seconds, stop_takes};
use crate::trial::plain;

pub(super) fn trials() -> Vec<Trial> {
    plain![
        systemd_accepts_the_units,
        the_units_are_sandboxed,
        units_use_valid_options_and_leave_time_to_drain
    ]
}

const UNITS: [&str; 3] = [
    "longhaul-api.service",
    "longhaul-worker@.service",
    "longhaul-maintenance.service",
];
/// Ten times the exposure that systemd computes for a unit: 90 has no sandbox, and below 20 is "OK"
/// at most.
const EXPOSURE: &str = "20";

fn unit(name: &str) -> String {
    read(&format!("deploy/systemd/{name}"))
}

/// The last value of a key.
fn value<'a>(unit: &'a str, key: &str) -> &'a str {
    let mut values = unit
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values
        .next_back()
        .unwrap_or_else(|| panic!("{key} is not there"))
}

fn analyze(arguments: &[&str], folder: &Path) -> String {
    let ran = Command::new("systemd-analyze")
        .args(arguments)
        .current_dir(folder)
        .output();
    let ran =
        ran.expect("systemd-analyze is missing: make test sets it up, or apt-get install systemd");

    let output =
        String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.success(),
        "systemd-analyze {arguments:?}: {output}"
    );

    output
}

/// The units as they would be installed, but with the program that was just built. An instance of a
/// template is a file with its own name.
fn installed() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in UNITS {
        let unit = unit(name);
        assert!(
            unit.contains("ExecStart=/usr/local/bin/longhaul "),
            "{name}"
        );
        let unit = unit.replace("/usr/local/bin/longhaul", env!("CARGO_BIN_EXE_longhaul"));
        std::fs::write(folder.path().join(name.replace('@', "@1")), unit).unwrap();
    }

    folder
}

fn systemd_accepts_the_units() {
    let folder = installed();
    for name in UNITS {
        let output = analyze(
            &[
                "verify",
                "--man=no",
                &format!("./{}", name.replace('@', "@1")),
            ],
            folder.path(),
        );

        // Messages about other units of this machine do not matter.
        let ours: Vec<&str> = output
            .lines()
            .filter(|line| line.contains("longhaul"))
            .collect();
        assert!(ours.is_empty(), "{ours:?}");
    }
}

fn the_units_are_sandboxed() {
    let folder = installed();
    for name in UNITS {
        let file = format!("./{}", name.replace('@', "@1"));
        analyze(
            &[
                "security",
                "--offline=true",
                "--no-pager",
                "--threshold",
                EXPOSURE,
                &file,
            ],
            folder.path(),
        );
    }
}

fn units_use_valid_options_and_leave_time_to_drain() {
    let file = Some(root().join("deploy/systemd/longhaul.toml"));
    let config = config::load(&Sources {
        file,
        ..Sources::default()
    })
    .unwrap();

    let example = unit("longhaul.env.example");
    let lines = example
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='));
    let variables: BTreeMap<String, String> = lines
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();

    let from_example = configured(&variables).unwrap();
    assert_eq!(from_example.broker.url.scheme(), "amqp");

    let document = read("docs/deployment.md");
    let enabled = document
        .lines()
        .find(|line| line.starts_with("systemctl enable --now"))
        .expect("what is started");
    let workers = enabled.matches("longhaul-worker@").count();

    assert!(variables.contains_key("LONGHAUL_REDIS__NODES"));
    assert_eq!(
        usize::try_from(from_example.redis.nodes),
        Ok(workers),
        "limits are divided by the workers"
    );

    for name in UNITS {
        let unit = unit(name);
        let command: Vec<&str> = value(&unit, "ExecStart").split(' ').skip(1).collect();
        accepts(&command).unwrap();

        assert!(
            command
                .windows(2)
                .any(|pair| pair == ["--config", "/etc/longhaul/longhaul.toml"]),
            "{name}"
        );

        assert_eq!(
            value(&unit, "EnvironmentFile"),
            "/etc/longhaul/longhaul.env"
        );
        assert!(
            seconds(value(&unit, "TimeoutStopSec")) > stop_takes(&config),
            "{name}"
        );
        assert_eq!(
            (value(&unit, "KillSignal"), value(&unit, "User")),
            ("SIGTERM", "longhaul")
        );

        for line in unit
            .lines()
            .filter_map(|line| line.strip_prefix("Environment="))
        {
            let (name, value) = line.split_once('=').expect("a value");
            configured(&BTreeMap::from([(name.to_owned(), value.to_owned())])).unwrap();
        }
    }
}
