//! The four sources, brought together. What is not a key is refused, with the nearest that is.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use figment::{
    Figment, Profile, Provider,
    providers::{Format as _, Serialized, Toml},
    value::{Dict, Map, Value},
};
use longhaul::operating::WireDuration;

use super::{
    Config,
    keys::{KEYS, Key, Kind},
    nearest::nearest,
};

/// The file that is read when none is named and it is there.
const DEFAULT_FILE: &str = "longhaul.toml";
const PREFIX: &str = "LONGHAUL_";
/// How far a short variable may be from a known one to count as a typo of it. What is farther is somebody else's: a
/// cluster may set variables of its own for a service that is called longhaul.
const TYPO: usize = 2;

/// Where a configuration comes from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file that was named; it must be there.
    pub file: Option<PathBuf>,
    /// The environment, as the program found it.
    pub variables: Vec<(String, String)>,
    /// Keys that flags set, with their values as text.
    pub flags: Vec<(&'static str, String)>,
}

impl Sources {
    /// The variables of this process that are about Longhaul.
    pub fn of_process(file: Option<PathBuf>) -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let ours = |(name, _): &(String, String)| name.starts_with(PREFIX);
        Self {
            file,
            variables: std::env::vars_os().filter_map(text).filter(ours).collect(),
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
    let named = sources.file.clone();
    let file = named.or_else(|| {
        Path::new(DEFAULT_FILE)
            .exists()
            .then(|| PathBuf::from(DEFAULT_FILE))
    });
    let mut figment = Figment::from(Serialized::defaults(Config::default()));
    if let Some(path) = &file {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        let shown = path.display().to_string();
        let read = Toml::string(&text)
            .data()
            .map_err(|error| broken_file(&shown, &error.to_string()))?;
        let dict = read.into_values().next().unwrap_or_default();
        check_keys(&dict).with_context(|| format!("in {shown}"))?;
        figment = figment.merge(Source { name: shown, dict });
    }
    // A variable that holds nothing says nothing: that is how many tools write one that is not set.
    for (name, value) in sources
        .variables
        .iter()
        .filter(|(_, value)| !value.is_empty())
    {
        if let Some((path, key)) = key_of_variable(name)? {
            figment = figment.merge(Source::of(
                name,
                &path,
                read_text(key, value).with_context(|| name.clone())?,
            ));
        }
    }
    for (name, value) in &sources.flags {
        let path: Vec<String> = name.split('.').map(str::to_owned).collect();
        let key = KEYS
            .iter()
            .find(|key| key.name == *name)
            .with_context(|| format!("{name} is no key"))?;
        figment = figment.merge(Source::of("a flag", &path, read_text(key, value)?));
    }
    let config: Config = figment.extract().map_err(|error| misfit(&error))?;
    config.check()?;
    Ok(config)
}

/// A broken file, without the line that is broken: it may hold a password.
fn broken_file(name: &str, error: &str) -> anyhow::Error {
    let lines: Vec<&str> = error.lines().filter(|line| !line.contains('|')).collect();
    anyhow::anyhow!("{name} is not TOML: {}", lines.join(" "))
}

/// A value that does not fit its key.
fn misfit(error: &figment::Error) -> anyhow::Error {
    let source = error
        .metadata
        .as_ref()
        .map_or("the configuration", |metadata| &metadata.name)
        .to_owned();
    let key = error.path.join(".");
    let first = error.kind.to_string();
    anyhow::anyhow!("{key} in {source} does not fit: {first}")
}

/// Refuses a key that nobody knows.
fn check_keys(dict: &Dict) -> anyhow::Result<()> {
    let mut paths = Vec::new();
    flatten(&mut Vec::new(), dict, &mut paths);
    for path in paths {
        // An empty table says nothing, and one that leads to keys is on the way to them.
        if !KEYS.iter().any(|key| key.is_at(&path)) {
            let written = path.join(".");
            bail!("{written} is not a key; {}", suggestion(&written));
        }
    }
    Ok(())
}

fn suggestion(written: &str) -> String {
    let near = nearest(written, KEYS.iter().map(|key| key.name)).map_or("", |(name, _)| name);
    format!("did you mean {near}? docs/configuration.md has them all")
}

/// The paths of all values. A table in a list has its place as a part of its path.
fn flatten(path: &mut Vec<String>, dict: &Dict, paths: &mut Vec<Vec<String>>) {
    for (name, value) in dict {
        path.push(name.clone());
        match value {
            Value::Dict(_, inner) => flatten(path, inner, paths),
            Value::Array(_, items) if items.iter().any(|item| item.as_dict().is_some()) => {
                paths.push(path.clone());
                for (place, item) in items.iter().enumerate() {
                    path.push(place.to_string());
                    match item.as_dict() {
                        Some(inner) => flatten(path, inner, paths),
                        None => paths.push(path.clone()),
                    }
                    path.pop();
                }
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

/// The key that a variable sets; none when it is not about a key. Two underscores stand between the levels of a key.
fn key_of_variable(name: &str) -> anyhow::Result<Option<(Vec<String>, &'static Key)>> {
    if let Some(key) = KEYS.iter().find(|key| key.variable == Some(name)) {
        return Ok(Some((
            key.segments().into_iter().map(str::to_owned).collect(),
            key,
        )));
    }
    let Some(rest) = name.strip_prefix(PREFIX) else {
        return Ok(None);
    };
    if rest.contains("__") {
        let path: Vec<String> = rest.split("__").map(str::to_lowercase).collect();
        let known = KEYS
            .iter()
            .find(|key| key.is_at(&path) && key.kind != Kind::Rules);
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

/// A value that was written as text.
fn read_text(key: &Key, text: &str) -> anyhow::Result<Value> {
    let refuse = || {
        format!(
            "{} is not what {} takes; allowed: {}",
            quoted(key, text),
            key.name,
            key.kind.as_str()
        )
    };
    Ok(match key.kind {
        Kind::Number => Value::from(text.parse::<u64>().with_context(refuse)?),
        Kind::Flag => Value::from(text.parse::<bool>().with_context(refuse)?),
        Kind::Duration => Value::from(
            text.parse::<WireDuration>()
                .map_err(anyhow::Error::msg)?
                .to_string(),
        ),
        Kind::Texts => Value::from(
            text.split(',')
                .map(|part| part.trim().to_owned())
                .collect::<Vec<_>>(),
        ),
        Kind::Text | Kind::Url | Kind::Address => Value::from(text),
        Kind::Rules => bail!("{} can only be set in the file", key.name),
    })
}

fn quoted(key: &Key, text: &str) -> String {
    if key.kind == Kind::Url {
        "the value".to_owned()
    } else {
        format!("{text:?}")
    }
}

/// One source's values, with its name for errors.
struct Source {
    name: String,
    dict: Dict,
}

impl Source {
    fn of(name: &str, path: &[String], value: Value) -> Self {
        let nest = |inner: Value, part: &String| Value::from(Dict::from([(part.clone(), inner)]));
        let nested = path.iter().rev().fold(value, nest);
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
