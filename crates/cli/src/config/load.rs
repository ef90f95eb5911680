//! Merges the four sources of the configuration. A name that is not a key is refused together with
//! the nearest one that is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use figment::{
    Figment, Profile, Provider,
    error::{Actual, Kind},
    providers::{Format as _, Serialized, Toml},
    value::{Dict, Map, Value},
};
use longhaul::operating::WireDuration;

use super::{
    Config,
    keys::{KEYS, Key, ValueKind},
};

/// The file that is read if none is named and it exists.
const DEFAULT_FILE: &str = "longhaul.toml";
const PREFIX: &str = "LONGHAUL_";
/// How many letters a short variable may differ from a known one to count as a typo of it. Other
/// variables are ignored: a cluster may set some for a service that is called longhaul.
const TYPO: usize = 2;

/// Where a configuration comes from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file that was named; it must exist.
    pub file: Option<PathBuf>,
    /// The environment of the process.
    pub variables: Vec<(String, String)>,
    /// Keys that flags set, with their values as text.
    pub flags: Vec<(&'static str, String)>,
}

impl Sources {
    /// With the variables of this process that start with `LONGHAUL_`.
    pub fn of_process(file: Option<PathBuf>) -> Self {
        let text = |(name, value): (OsString, OsString)| {
            let name = name.into_string().ok()?;
            let value = value.into_string().ok()?;
            name.starts_with(PREFIX).then_some((name, value))
        };

        Self {
            file,
            variables: std::env::vars_os().filter_map(text).collect(),
            flags: Vec::new(),
        }
    }

    /// With a key set by a flag, if it was given.
    #[must_use]
    pub fn flag(mut self, key: &'static str, value: Option<impl ToString>) -> Self {
        self.flags
            .extend(value.map(|value| (key, value.to_string())));
        self
    }
}

/// The configuration that the sources make together.
pub fn load(sources: &Sources) -> anyhow::Result<Config> {
    let mut figment = Figment::from(Serialized::defaults(Config::default()));

    if let Some(path) = file_of(sources) {
        figment = figment.merge(read_file(&path)?);
    }

    for (name, value) in &sources.variables {
        // Many tools write a variable that is not set as an empty one.
        if value.is_empty() {
            continue;
        }
        if let Some((path, key)) = key_of_variable(name)? {
            let value = read_text(key, value).with_context(|| name.clone())?;
            figment = figment.merge(Source::of(name, &path, value));
        }
    }

    for (name, value) in &sources.flags {
        let key = KEYS.iter().find(|key| key.name == *name);
        let key = key.with_context(|| format!("{name} is not a key"))?;
        let path: Vec<String> = key.segments().map(str::to_owned).collect();
        figment = figment.merge(Source::of("a flag", &path, read_text(key, value)?));
    }

    let config: Config = figment.extract().map_err(|error| misfit(&error))?;
    config.check()?;
    Ok(config)
}

fn file_of(sources: &Sources) -> Option<PathBuf> {
    if let Some(named) = &sources.file {
        return Some(named.clone());
    }

    let default = Path::new(DEFAULT_FILE);
    default.exists().then(|| default.to_owned())
}

fn read_file(path: &Path) -> anyhow::Result<Source> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
    let read = Toml::string(&text)
        .data()
        .map_err(|error| broken_file(&name, &error.to_string()))?;

    let dict = read.into_values().next().unwrap_or_default();
    check_keys(&dict).with_context(|| format!("in {name}"))?;
    Ok(Source { name, dict })
}

/// The error for a broken file, without the broken line: it may hold a password.
fn broken_file(name: &str, error: &str) -> anyhow::Error {
    let lines: Vec<&str> = error.lines().filter(|line| !line.contains('|')).collect();
    anyhow::anyhow!("{name} is not TOML: {}", lines.join(" "))
}

/// The error for a value that does not fit its key, without a value of the wrong type: it may be a
/// password.
fn misfit(error: &figment::Error) -> anyhow::Error {
    let source = error
        .metadata
        .as_ref()
        .map_or("the configuration", |metadata| &metadata.name);
    let key = error.path.join(".");

    let problem = match &error.kind {
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!("found {}, expected {expected}", type_of(found))
        }
        Kind::Message(_)
        | Kind::InvalidLength(..)
        | Kind::UnknownVariant(..)
        | Kind::UnknownField(..)
        | Kind::MissingField(_)
        | Kind::DuplicateField(_)
        | Kind::ISizeOutOfRange(_)
        | Kind::USizeOutOfRange(_)
        | Kind::Unsupported(_)
        | Kind::UnsupportedKey(..) => error.kind.to_string(),
    };

    anyhow::anyhow!("{key} in {source} does not fit: {problem}")
}

/// The type of a value, without the value behind it.
fn type_of(found: &Actual) -> String {
    let shown = found.to_string();
    let name = shown.split(['`', '"', '\'', '[']).next();
    name.unwrap_or_default().trim().to_owned()
}

/// Refuses names that are not keys.
fn check_keys(dict: &Dict) -> anyhow::Result<()> {
    let mut paths = Vec::new();
    flatten(&mut Vec::new(), dict, &mut paths);

    for path in paths {
        if !KEYS.iter().any(|key| key.is_at(&path)) {
            let written = path.join(".");
            bail!("{written} is not a key; {}", suggestion(&written));
        }
    }

    Ok(())
}

fn suggestion(written: &str) -> String {
    let known = KEYS.iter().map(|key| key.name.as_str());
    let near = nearest(written, known).map_or("", |(name, _)| name);
    format!("did you mean {near}? docs/configuration.md lists all keys")
}

/// The nearest of some names, and how many letters it differs by.
fn nearest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<(&'a str, usize)> {
    known
        .into_iter()
        .map(|name| (name, strsim::osa_distance(written, name)))
        .min_by_key(|(_, distance)| *distance)
}

/// The paths of all values. The path of a table in a list has its index in the list.
fn flatten(path: &mut Vec<String>, dict: &Dict, paths: &mut Vec<Vec<String>>) {
    for (name, value) in dict {
        path.push(name.clone());

        match value {
            Value::Dict(_, inner) => flatten(path, inner, paths),
            Value::Array(_, items) if items.iter().any(|item| item.as_dict().is_some()) => {
                paths.push(path.clone());
                flatten_items(path, items, paths);
            }
            Value::Array(..)
            | Value::String(..)
            | Value::Char(..)
            | Value::Bool(..)
            | Value::Num(..)
            | Value::Empty(..) => paths.push(path.clone()),
        }

        path.pop();
    }
}

fn flatten_items(path: &mut Vec<String>, items: &[Value], paths: &mut Vec<Vec<String>>) {
    for (index, item) in items.iter().enumerate() {
        path.push(index.to_string());
        match item.as_dict() {
            Some(inner) => flatten(path, inner, paths),
            None => paths.push(path.clone()),
        }
        path.pop();
    }
}

/// The key that a variable sets, or `None` if it is not about a key. The long name of a variable
/// has two underscores between the levels of a key.
fn key_of_variable(name: &str) -> anyhow::Result<Option<(Vec<String>, &'static Key)>> {
    if let Some(key) = KEYS.iter().find(|key| key.variable == Some(name)) {
        let path = key.segments().map(str::to_owned).collect();
        return Ok(Some((path, key)));
    }

    let Some(rest) = name.strip_prefix(PREFIX) else {
        return Ok(None);
    };

    if rest.contains("__") {
        let path: Vec<String> = rest.split("__").map(str::to_lowercase).collect();
        let known = KEYS
            .iter()
            .find(|key| key.is_at(&path) && key.kind != ValueKind::Rules);
        let Some(key) = known else {
            let written = path.join(".");
            bail!(
                "{name} sets {written}, which is not a key; {}",
                suggestion(&written)
            );
        };
        return Ok(Some((path, key)));
    }

    let short = KEYS.iter().filter_map(|key| key.variable);
    match nearest(name, short) {
        Some((near, 1..=TYPO)) => {
            bail!("{name} is not a variable of Longhaul; did you mean {near}?")
        }
        _ => Ok(None),
    }
}

/// Reads a value that was written as text.
fn read_text(key: &Key, text: &str) -> anyhow::Result<Value> {
    let refuse = || {
        format!(
            "the value is not what {} takes; allowed: {}",
            key.name,
            key.kind.as_str()
        )
    };

    Ok(match key.kind {
        ValueKind::Number => Value::from(text.parse::<u64>().with_context(refuse)?),
        ValueKind::Flag => Value::from(text.parse::<bool>().with_context(refuse)?),
        ValueKind::Duration => {
            let duration: WireDuration = text.parse().map_err(anyhow::Error::msg)?;
            Value::from(duration.to_string())
        }
        ValueKind::Texts => {
            let items = text.split(',').map(|item| item.trim().to_owned());
            Value::from(items.collect::<Vec<_>>())
        }
        ValueKind::Text | ValueKind::Url | ValueKind::Address => Value::from(text),
        ValueKind::Rules => bail!("{} can only be set in the file", key.name),
    })
}

/// The values of one source, with its name for errors.
struct Source {
    name: String,
    dict: Dict,
}

impl Source {
    /// A source with one value.
    fn of(name: &str, path: &[String], value: Value) -> Self {
        let mut nested = value;
        for segment in path.iter().rev() {
            nested = Value::from(Dict::from([(segment.clone(), nested)]));
        }

        Self {
            name: name.to_owned(),
            dict: nested.into_dict().unwrap_or_default(),
        }
    }
}

impl Provider for Source {
    fn metadata(&self) -> figment::Metadata {
        figment::Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Map::from([(Profile::Default, self.dict.clone())]))
    }
}

#[cfg(test)]
mod tests;
