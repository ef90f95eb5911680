//! `docs/configuration.md`, made from the keys and the defaults.

use std::fmt::Write as _;
use std::time::Duration;

use longhaul::operating::WireDuration;
use serde_json::Value;

use super::{
    Config,
    keys::{KEYS, Key, Kind},
};

const HEAD: &str = "# Configuration

<!-- Written by `make generate` from crates/cli/src/config. Do not edit. -->

What `longhaul serve`, `worker`, `migrate`, `token` and `doctor` go by, in this order, each over the one before:

1. the defaults below;
2. one TOML file: the one that `--config` names, or `longhaul.toml` in the working directory if it is there;
3. variables: the short ones in the tables, or `LONGHAUL_` and the key with two underscores between its levels, such as
   `LONGHAUL_WORKER__SLOTS=20` for `worker.slots`. Lists are separated by commas;
4. flags such as `--listen`.

Durations are written `30s`, `1h 30m` or `PT30S`. A key that is not in this list is an error that names the nearest one
that is. Passwords in URLs are never shown. `longhaul doctor` checks all of it against the machine it runs on.

```toml
[store]
url = \"postgres://longhaul@db.example/longhaul\"

[http]
listen = \"127.0.0.1:7080\"

[worker]
slots = 50

[worker.queues.vip_short]
reserved = 10

[limits.\"openai/gpt-4\"]
rate = 60
per = \"1m\"
burst = 5
```
";

/// The whole document.
pub fn document() -> String {
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut text = HEAD.to_owned();
    let mut section = "";
    for key in KEYS {
        let own = key.name.split('.').next().unwrap_or_default();
        if own != section {
            section = own;
            let _ = write!(
                text,
                "\n## {section}\n\n| key | takes | default | what it is for |\n| --- | --- | --- | --- |\n"
            );
        }
        let name = key.name.replace('*', "NAME");
        let variable = key
            .variable
            .map_or(String::new(), |variable| format!("<br>`{variable}`"));
        let default = default_of(key, &defaults);
        let _ = writeln!(
            text,
            "| `{name}`{variable} | {} | {default} | {} |",
            key.kind.as_str(),
            key.what
        );
    }
    text
}

fn default_of(key: &Key, defaults: &Value) -> String {
    let value = key
        .segments()
        .into_iter()
        .try_fold(defaults, |value, part| value.get(part));
    match (key.kind, value) {
        (Kind::Rules, Some(Value::Array(rules))) => {
            let rule = |rule: &Value| format!("`{rule}`").replace('"', "");
            rules.iter().map(rule).collect::<Vec<_>>().join("<br>")
        }
        (Kind::Duration, Some(Value::String(text))) => {
            let read = text.parse::<WireDuration>();
            read.map_or(String::new(), |duration| {
                format!("`{}`", friendly(duration.0))
            })
        }
        (_, Some(Value::String(text))) => format!("`{text}`"),
        (_, Some(Value::Array(items))) => {
            let item = |item: &Value| item.as_str().map(|text| format!("`{text}`"));
            items.iter().filter_map(item).collect::<Vec<_>>().join(", ")
        }
        (_, Some(value)) if !value.is_null() => format!("`{value}`"),
        (_, _) => "none".to_owned(),
    }
}

/// A duration in the largest unit that has it whole.
fn friendly(duration: Duration) -> String {
    let ms = duration.as_millis();
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];
    let whole = units
        .iter()
        .find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit));
    whole.map_or(format!("{ms}ms"), |(unit, name)| {
        format!("{}{name}", ms / unit)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn leaves(prefix: &str, value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                for (name, inner) in map {
                    let path = if prefix.is_empty() {
                        name.clone()
                    } else {
                        format!("{prefix}.{name}")
                    };
                    leaves(&path, inner, found);
                }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => {
                found.insert(prefix.to_owned());
            }
        }
    }

    #[test]
    fn every_key_of_the_types_is_on_the_list_and_nothing_else() {
        let mut found = BTreeSet::new();
        leaves(
            "",
            &serde_json::to_value(Config::default()).unwrap(),
            &mut found,
        );
        let listed = KEYS
            .iter()
            .filter(|key| !key.name.contains('*'))
            .map(|key| key.name.to_owned());
        assert_eq!(found, listed.collect());
    }

    #[test]
    fn durations_are_written_in_their_largest_unit() {
        for (ms, written) in [
            (5, "5ms"),
            (1_000, "1s"),
            (90_000, "90s"),
            (7_200_000, "2h"),
            (259_200_000, "3d"),
        ] {
            assert_eq!(friendly(Duration::from_millis(ms)), written);
        }
    }

    #[test]
    fn the_checked_in_document_is_current() {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        if std::env::vars_os().any(|(name, _)| name == "LONGHAUL_GENERATE") {
            std::fs::write(&path, document()).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == document(),
            "docs/configuration.md is not current: make generate writes it"
        );
    }
}
