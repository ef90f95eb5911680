//! What the application can be told, from the environment.

use std::sync::Arc;
use std::time::Duration;

use crate::provider::{Offline, OpenAi, OpenAiSettings, Provider, ProviderError};

/// Where OpenAI itself is.
const BASE_URL: &str = "https://api.openai.com/v1";
/// Cheap, and good enough for a summary.
const MODEL: &str = "gpt-4o-mini";
/// How long a provider may keep silent.
const SILENCE: Duration = Duration::from_secs(60);
/// Calls at once.
const CONCURRENCY: usize = 8;
/// Calls in a minute: ten a second, below what providers give a new account.
const REQUESTS_PER_MINUTE: u32 = 600;

/// Who writes, and how much of it at once.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The provider; without it the built-in one writes.
    pub openai: Option<OpenAiSettings>,
    /// How long the built-in one takes for a word, if not as long as it does by itself.
    pub pace: Option<Duration>,
    /// Calls of the provider at once, in one process.
    pub concurrency: usize,
    /// Calls of the provider in a minute.
    pub requests_per_minute: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            openai: None,
            pace: None,
            concurrency: CONCURRENCY,
            requests_per_minute: REQUESTS_PER_MINUTE,
        }
    }
}

/// A variable that is not what it must be. The value is not told: it may be a key in the wrong place.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is not valid; allowed: {allowed}")]
pub struct SettingsError {
    name: &'static str,
    allowed: &'static str,
}

impl Settings {
    /// Reads `NOVEL_OPENAI_KEY`, `NOVEL_OPENAI_BASE_URL`, `NOVEL_OPENAI_MODEL`, `NOVEL_OPENAI_TIMEOUT_MS`,
    /// `NOVEL_PACE_MS`, `NOVEL_CONCURRENCY` and `NOVEL_REQUESTS_PER_MINUTE`. With a key or a base URL an
    /// OpenAI-compatible provider writes, otherwise the built-in one.
    pub fn from_environment(read: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let given = |name: &str| read(name).filter(|value| !value.trim().is_empty());
        let number = |name: &'static str, most: u64, allowed: &'static str| match given(name) {
            None => Ok(None),
            Some(text) => match text.trim().parse::<u64>() {
                Ok(number) if (1..=most).contains(&number) => Ok(Some(number)),
                Ok(_) | Err(_) => Err(SettingsError { name, allowed }),
            },
        };
        let silence = number(
            "NOVEL_OPENAI_TIMEOUT_MS",
            3_600_000,
            "milliseconds, from 1 to 3600000",
        )?;
        let pace = number(
            "NOVEL_PACE_MS",
            60_000,
            "milliseconds a word, from 1 to 60000",
        )?;
        let concurrency = number(
            "NOVEL_CONCURRENCY",
            10_000,
            "calls at once, from 1 to 10000",
        )?;
        let per_minute = number(
            "NOVEL_REQUESTS_PER_MINUTE",
            1_000_000,
            "calls, from 1 to 1000000",
        )?;
        let (key, base_url) = (given("NOVEL_OPENAI_KEY"), given("NOVEL_OPENAI_BASE_URL"));
        if base_url
            .as_ref()
            .is_some_and(|url| !url.starts_with("http://") && !url.starts_with("https://"))
        {
            return Err(SettingsError {
                name: "NOVEL_OPENAI_BASE_URL",
                allowed: "http://… or https://…",
            });
        }
        let openai = (key.is_some() || base_url.is_some()).then(|| OpenAiSettings {
            base_url: base_url.unwrap_or_else(|| BASE_URL.to_owned()),
            key,
            model: given("NOVEL_OPENAI_MODEL").unwrap_or_else(|| MODEL.to_owned()),
            silence: silence.map_or(SILENCE, Duration::from_millis),
        });
        Ok(Self {
            openai,
            pace: pace.map(Duration::from_millis),
            concurrency: concurrency
                .and_then(|number| usize::try_from(number).ok())
                .unwrap_or(CONCURRENCY),
            requests_per_minute: per_minute
                .and_then(|number| u32::try_from(number).ok())
                .unwrap_or(REQUESTS_PER_MINUTE),
        })
    }

    /// The provider that these settings say.
    pub fn provider(&self) -> Result<Arc<dyn Provider>, ProviderError> {
        Ok(match (&self.openai, self.pace) {
            (Some(openai), _) => Arc::new(OpenAi::new(openai.clone())?),
            (None, Some(pace)) => Arc::new(Offline::paced(pace)),
            (None, None) => Arc::new(Offline::default()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let pairs: Vec<(String, String)> = pairs
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        Settings::from_environment(|name| {
            pairs
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.clone())
        })
    }

    #[test]
    fn without_a_word_the_built_in_provider_writes() {
        let settings = read(&[("NOVEL_OPENAI_KEY", "  ")]).unwrap();
        assert_eq!(settings.provider().unwrap().key(), "offline/steady");
    }

    #[test]
    fn a_key_is_used_and_never_shown() {
        let settings = read(&[
            ("NOVEL_OPENAI_KEY", "sk-secret"),
            ("NOVEL_OPENAI_MODEL", "m"),
        ])
        .unwrap();
        let provider = settings.provider().unwrap();
        assert_eq!(provider.key(), "openai/m");
        assert!(!format!("{settings:?} {provider:?}").contains("sk-secret"));
    }

    #[test]
    fn what_is_not_valid_is_named() {
        let refused = read(&[("NOVEL_PACE_MS", "fast")]).unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("NOVEL_PACE_MS is not valid; allowed: milliseconds")
        );
        assert!(read(&[("NOVEL_OPENAI_BASE_URL", "localhost")]).is_err());
        assert!(read(&[("NOVEL_CONCURRENCY", "0")]).is_err());
    }
}
