//! `docs/configuration.md`, written from the keys and their defaults.

use std::fmt::Write as _;
use std::time::Duration;

use longhaul::operating::WireDuration;
use serde_json::Value;

use super::{
    Config,
    keys::{KEYS, Key, ValueKind},
};

const HEAD: &str = "# Configuration

<!-- Written by `make generate` from crates/cli/src/config. Do not edit. -->

`longhaul serve`, `worker`, `migrate`, `token` and `doctor` read their configuration from these
sources. A later one overrides an earlier one:

1. the defaults below;
2. one TOML file: the one that `--config` names, or `longhaul.toml` in the working directory if it
   exists;
3. environment variables: the short ones in the tables, or `LONGHAUL_` and the key with two
   underscores between its levels, such as `LONGHAUL_WORKER__SLOTS=20` for `worker.slots`. Lists are
   separated by commas;
4. flags such as `--listen`.

Durations are written `30s`, `1h 30m` or `PT30S`. A key that is not in this list is an error that
names the nearest one that is. Passwords in URLs are never shown. `longhaul doctor` checks the whole
configuration against the machine it runs on.

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

const TABLE: &str = "| key | takes | default | what it is for |\n| --- | --- | --- | --- |";

/// The whole document.
pub fn document() -> String {
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut text = HEAD.to_owned();
    let mut section = "";

    for key in KEYS.iter() {
        let own = key.segments().next().unwrap_or_default();
        if own != section {
            section = own;
            // Writing to a string does not fail.
            let _ = writeln!(text, "\n## {section}\n\n{TABLE}");
        }

        text += &row(key, &defaults);
    }

    text
}

fn row(key: &Key, defaults: &Value) -> String {
    let name = key.name.replace('*', "NAME");
    let variable = match key.variable {
        Some(variable) => format!("<br>`{variable}`"),
        None => String::new(),
    };
    let kind = key.kind.as_str();
    let default = default_of(key, defaults);

    format!(
        "| `{name}`{variable} | {kind} | {default} | {} |\n",
        key.what
    )
}

fn default_of(key: &Key, defaults: &Value) -> String {
    let value = key
        .segments()
        .try_fold(defaults, |value, segment| value.get(segment));

    match (key.kind, value) {
        (ValueKind::Rules, Some(Value::Array(rules))) => {
            let rule = |rule: &Value| format!("`{rule}`").replace('"', "");
            rules.iter().map(rule).collect::<Vec<_>>().join("<br>")
        }
        (ValueKind::Duration, Some(Value::String(text))) => {
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

/// A duration in the largest unit that it is a multiple of.
fn friendly(duration: Duration) -> String {
    let ms = duration.as_millis();
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];

    for (unit, name) in units {
        if ms >= unit && ms.is_multiple_of(unit) {
            return format!("{}{name}", ms / unit);
        }
    }

    format!("{ms}ms")
}

#[cfg(test)]
mod tests {
    use super::*;

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
