//! The list of all keys, derived from the structs that hold their values.
//!
//! [`section!`] declares such a struct. It must never need a second list: a key that is a field is
//! known to the reference document, to environment variables and to the search for typos.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::LazyLock;

use longhaul::operating::WireDuration;

use super::{BrokerQueues, Config, IdentityKind, SecretText, SecretUrl};
use crate::telemetry::LogFormat;

/// Every key, in the order of the sections.
pub(super) static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| Config::keys(""));

/// What may be written for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    Text,
    Url,
    Address,
    Number,
    Flag,
    Duration,
    /// In a variable, separated by commas.
    Texts,
    /// Only in the file.
    Rules,
}

impl ValueKind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Url => "URL",
            Self::Address => "address and port",
            Self::Number => "whole number",
            Self::Flag => "true or false",
            Self::Duration => "duration",
            Self::Texts => "list of texts",
            Self::Rules => "list of tables",
        }
    }
}

/// A key.
#[derive(Debug, Clone)]
pub(super) struct Key {
    /// With its section: `worker.slots`. A `*` stands for a name that the operator chooses.
    pub(super) name: String,
    pub(super) kind: ValueKind,
    /// What it is for: the doc comment of its field.
    pub(super) what: String,
    /// A short variable beside the one that follows from the name.
    pub(super) variable: Option<&'static str>,
}

impl Key {
    pub(super) fn segments(&self) -> impl Iterator<Item = &str> {
        self.name.split('.')
    }

    /// Whether a path as an operator wrote it is this key.
    pub(super) fn is_at(&self, path: &[String]) -> bool {
        self.segments().count() == path.len()
            && self
                .segments()
                .zip(path)
                .all(|(own, other)| own == "*" || own == other)
    }
}

/// A field of a section, before its type has said what it takes.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) what: String,
    pub(super) variable: Option<&'static str>,
}

impl Field {
    /// `doc` are the lines of the field's comment.
    pub(super) fn new(above: &str, name: &str, doc: &[&str], variable: &[&'static str]) -> Self {
        let lines: Vec<&str> = doc.iter().map(|line| line.trim()).collect();
        Self {
            name: if above.is_empty() {
                name.to_owned()
            } else {
                format!("{above}.{name}")
            },
            what: lines.join(" "),
            variable: variable.first().copied(),
        }
    }

    fn takes(self, kind: ValueKind) -> Vec<Key> {
        vec![Key {
            name: self.name,
            kind,
            what: self.what,
            variable: self.variable,
        }]
    }

    /// The same under a name that the operator chooses.
    fn of_any_name(self) -> Self {
        Self {
            name: format!("{}.*", self.name),
            ..self
        }
    }
}

/// A struct whose fields are keys. [`section!`] implements it.
pub(super) trait Section {
    /// All keys of it, under a name.
    fn keys(above: &str) -> Vec<Key>;
}

/// The type of a field: one key, or several if it is a section or a map.
pub(super) trait Setting {
    fn keys_of(field: Field) -> Vec<Key>;
}

impl<S: Section> Setting for S {
    fn keys_of(field: Field) -> Vec<Key> {
        Self::keys(&field.name)
    }
}

impl<S: Section> Setting for Vec<S> {
    fn keys_of(field: Field) -> Vec<Key> {
        let below = S::keys(&format!("{}.*", field.name));
        let mut keys = field.takes(ValueKind::Rules);
        keys.extend(below);
        keys
    }
}

impl<V: Setting> Setting for BTreeMap<String, V> {
    fn keys_of(field: Field) -> Vec<Key> {
        V::keys_of(field.of_any_name())
    }
}

impl<V: Setting> Setting for Option<V> {
    fn keys_of(field: Field) -> Vec<Key> {
        V::keys_of(field)
    }
}

macro_rules! settings {
    ($($kind:ident: $($Type:ty),+;)+) => {
        $($(
            impl Setting for $Type {
                fn keys_of(field: Field) -> Vec<Key> {
                    field.takes(ValueKind::$kind)
                }
            }
        )+)+
    };
}

settings! {
    Text: String, SecretText, BrokerQueues, IdentityKind, LogFormat;
    Url: SecretUrl;
    Address: SocketAddr;
    Number: u32, usize;
    Flag: bool;
    Duration: WireDuration;
    Texts: Vec<String>;
}

/// Declares a section: the struct, its default and its keys.
///
/// ```text
/// section! {
///     /// What a worker offers.
///     pub struct Worker with settings: WorkerSettings {
///         /// Tasks that run at once in this process.
///         #[variable("LONGHAUL_SLOTS")]
///         pub slots: usize = settings.slots,
///     }
/// }
/// ```
///
/// `with` names the defaults of the part that the section is for; it may be left out, and so may
/// `#[variable]`, which gives the key a short environment variable. A section without any defaults
/// has no `Default`, and may have attributes for serde on its fields instead.
macro_rules! section {
    (
        $(#[$attribute:meta])*
        pub struct $Section:ident $(with $settings:ident: $Settings:ty)? {
            $(
                $(#[doc = $doc:literal])+
                $(#[variable($variable:literal)])?
                pub $key:ident: $Type:ty = $default:expr,
            )+
        }
    ) => {
        $crate::config::keys::section! {
            $(#[$attribute])*
            #[serde(default)]
            pub struct $Section {
                $(
                    $(#[doc = $doc])+
                    $(#[variable($variable)])?
                    pub $key: $Type,
                )+
            }
        }

        impl Default for $Section {
            fn default() -> Self {
                $(let $settings = <$Settings>::default();)?
                Self { $($key: $default,)+ }
            }
        }
    };
    (
        $(#[$attribute:meta])*
        pub struct $Section:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[variable($variable:literal)])?
                $(#[serde($($serde:tt)+)])?
                pub $key:ident: $Type:ty,
            )+
        }
    ) => {
        #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
        $(#[$attribute])*
        pub struct $Section {
            $(
                $(#[doc = $doc])+
                $(#[serde($($serde)+)])?
                pub $key: $Type,
            )+
        }

        impl $crate::config::keys::Section for $Section {
            fn keys(above: &str) -> Vec<$crate::config::keys::Key> {
                use $crate::config::keys::{Field, Setting};

                let mut keys = Vec::new();
                $(
                    let field = Field::new(above, stringify!($key), &[$($doc),+], &[$($variable)?]);
                    keys.extend(<$Type as Setting>::keys_of(field));
                )+
                keys
            }
        }
    };
}

pub(super) use section;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

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
    fn the_keys_are_the_fields_of_the_configuration() {
        let defaults = serde_json::to_value(Config::default()).unwrap();
        let mut found = BTreeSet::new();
        leaves("", &defaults, &mut found);

        let listed = KEYS
            .iter()
            .filter(|key| !key.name.contains('*'))
            .map(|key| key.name.clone());
        assert_eq!(found, listed.collect());
    }

    #[test]
    fn a_key_has_the_text_of_its_field_the_kind_of_its_type_and_its_variable() {
        let find = |name: &str| KEYS.iter().find(|key| key.name == name).unwrap();

        let listen = find("http.listen");
        assert_eq!(
            (listen.kind, listen.variable),
            (ValueKind::Address, Some("LONGHAUL_LISTEN"))
        );
        assert!(listen.what.starts_with("Where the HTTP API listens."));

        assert_eq!(find("worker.types.*").kind, ValueKind::Number);
        assert_eq!(find("worker.name").kind, ValueKind::Text);
        assert_eq!(find("routing.rules").kind, ValueKind::Rules);
        assert_eq!(find("routing.rules.*.at_most").kind, ValueKind::Duration);
        assert_eq!(find("events.external.*.types").kind, ValueKind::Texts);
        assert_eq!(find("limits.*.rate").variable, None);
    }
}
