//! `deploy/compose.yaml` and the image.

use std::collections::BTreeMap;

use libtest_mimic::Trial;
use longhaul_cli::config::Config;
use serde_json::{Map, Value};

use super::{accepts, configured, documents, read, seconds, stop_takes, texts};
use crate::trial::plain;

pub(super) fn trials() -> Vec<Trial> {
    plain![
        the_compose_file_uses_valid_options_and_variables,
        services_have_health_checks_limits_and_an_order,
        passwords_are_variables_and_every_variable_has_an_example,
        only_loopback_ports_are_published,
        the_image_runs_as_its_own_user
    ]
}

/// The password in these tests.
const FILLED_IN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn compose() -> Value {
    documents("deploy/compose.yaml").remove(0)
}

fn services(compose: &Value) -> &Map<String, Value> {
    compose["services"].as_object().expect("services")
}

/// The services that run the program.
fn nodes(compose: &Value) -> Vec<(&String, &Value)> {
    services(compose)
        .iter()
        .filter(|(_, service)| service["image"] == "longhaul")
        .collect()
}

/// The names in `${NAME:?…}` of a text, and the text with all of them filled in.
fn filled_in(text: &str) -> (Vec<String>, String) {
    let mut names = Vec::new();
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (inner, end) = after.split_once('}').expect("a brace that is closed");
        let (name, hint) = inner.split_once(":?").expect("a variable that must be set");
        assert!(!hint.is_empty(), "{text}");
        names.push(name.to_owned());
        filled += &format!("{before}{FILLED_IN}");
        rest = end;
    }

    (names, filled + rest)
}

fn configuration(node: &Value) -> Config {
    let variables = node["environment"].as_object().expect("variables").iter();
    let text = |value: &Value| {
        value
            .as_str()
            .unwrap_or_else(|| panic!("{value} is not in quotes"))
            .to_owned()
    };

    let variables: BTreeMap<String, String> = variables
        .map(|(name, value)| (name.clone(), filled_in(&text(value)).1))
        .collect();
    configured(&variables).unwrap()
}

fn the_compose_file_uses_valid_options_and_variables() {
    let compose = compose();
    let mut counted = BTreeMap::new();
    for (name, node) in nodes(&compose) {
        accepts(&texts(&node["command"])).unwrap();
        let config = configuration(node);
        assert!(
            config.store.url.scheme() == "postgres" && config.broker.url.scheme() == "amqp",
            "{name}"
        );
        assert!(
            seconds(node["stop_grace_period"].as_str().unwrap()) > stop_takes(&config),
            "{name}"
        );

        counted.insert(
            name.as_str(),
            node["deploy"]["replicas"].as_u64().expect("how many"),
        );
    }

    for (name, node) in nodes(&compose) {
        assert_eq!(
            u64::from(configuration(node).redis.nodes),
            counted["worker"],
            "{name} divides limits by the workers"
        );
    }

    assert_eq!(
        counted,
        BTreeMap::from([
            ("api", 2),
            ("worker", 3),
            ("maintenance", 1),
            ("migrate", 1)
        ])
    );
}

fn services_have_health_checks_limits_and_an_order() {
    let compose = compose();
    let known = services(&compose);
    let volumes = compose["volumes"].as_object().expect("volumes");

    for (name, service) in known {
        let limits = &service["deploy"]["resources"]["limits"];
        assert!(
            limits["memory"].is_string() && limits["cpus"].is_string(),
            "{name}: {limits}"
        );

        let health = &service["healthcheck"];
        let is_finished_job = name == "migrate" && health["disable"] == true;
        assert!(
            is_finished_job || texts(&health["test"]).len() >= 2,
            "{name}: {health}"
        );

        for (other, how) in service["depends_on"].as_object().into_iter().flatten() {
            let other = known
                .get(other)
                .unwrap_or_else(|| panic!("{name} waits for {other}, which is not there"));
            let ends = other["restart"] == "no";

            let wanted = if ends {
                "service_completed_successfully"
            } else {
                "service_healthy"
            };
            assert_eq!(how["condition"], wanted, "{name}");
        }

        for volume in texts(&service["volumes"]) {
            let (volume, _) = volume.split_once(':').expect("a path for the volume");
            assert!(
                volumes.contains_key(volume),
                "{name} mounts the volume {volume}, which is not declared"
            );
        }
    }

    for (name, node) in nodes(&compose) {
        assert!(
            node["read_only"] == true && texts(&node["cap_drop"]) == ["ALL"],
            "{name}"
        );
    }
}

fn passwords_are_variables_and_every_variable_has_an_example() {
    let text = read("deploy/compose.yaml");
    let commands: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let (mut used, _) = filled_in(&commands.join("\n"));
    used.sort();
    used.dedup();

    let example = read("deploy/compose.env.example");
    let mut explained: Vec<&str> = example
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    explained.sort_unstable();

    let all_empty: Vec<String> = used.iter().map(|name| format!("{name}=")).collect();
    assert_eq!(
        explained, all_empty,
        "each is named, and none has a default value"
    );

    for line in commands
        .iter()
        .filter(|line| line.contains("PASS") && line.contains(": "))
    {
        assert!(line.contains("${") || line.contains("$$"), "{line}");
    }
}

fn only_loopback_ports_are_published() {
    let compose = compose();
    let ports = services(&compose)
        .values()
        .flat_map(|service| texts(&service["ports"]));
    let ports: Vec<&str> = ports.collect();
    assert_eq!(ports, ["127.0.0.1:7080-7081:7080"]);
}

fn the_image_runs_as_its_own_user() {
    let file = read("deploy/Dockerfile");
    let arguments = |start: &str| {
        file.lines()
            .filter_map(|line| line.strip_prefix(start))
            .collect::<Vec<_>>()
    };

    assert_eq!(arguments("USER "), ["10001:10001"]);
    assert_eq!(arguments("FROM ").len(), 2, "the image has no build tools");
    assert_eq!(arguments("ENTRYPOINT "), [r#"["/usr/local/bin/longhaul"]"#]);

    let rust = read("Cargo.toml")
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .map(str::to_owned);
    let rust = rust.expect("the oldest Rust that builds it");
    assert!(
        arguments("FROM ")[0].starts_with(&format!("rust:{}-", rust.trim_matches('"'))),
        "{rust}"
    );

    let command = arguments("CMD ").concat();
    let command: Vec<String> = serde_json::from_str(&command).unwrap();
    accepts(&command.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();

    for copied in arguments("COPY ")
        .iter()
        .flat_map(|line| line.split(' '))
        .filter(|word| word.starts_with("deploy/"))
    {
        read(copied);
    }
}
