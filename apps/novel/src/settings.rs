//! The settings of the application, from the environment.

use std::sync::Arc;
use std::time::Duration;

use crate::provider::{Offline, OpenAi, OpenAiSettings, Provider, ProviderError};

/// The URL of OpenAI.
const BASE_URL: &str = "https://api.openai.com/v1";
/// Cheap, and good enough for a summary.
const MODEL: &str = "gpt-4o-mini";
/// The longest time without data from a provider.
const SILENCE: Duration = Duration::from_secs(60);
/// Concurrent calls.
const CONCURRENCY: usize = 8;
/// Calls per minute: ten a second, below what providers allow a new account.
const REQUESTS_PER_MINUTE: u32 = 600;

/// The provider and its limits.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The OpenAI-compatible provider; `None` for the built-in one.
    pub openai: Option<OpenAiSettings>,
    /// How long the built-in provider takes for a word; `None` for its default.
    pub pace: Option<Duration>,
    /// Concurrent calls of the provider in one process.
    pub concurrency: usize,
    /// Calls of the provider per minute.
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

/// An invalid environment variable. The value is not shown because it may be a misplaced key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is not valid; allowed: {allowed}")]
pub struct SettingsError {
    name: &'static str,
    allowed: &'static str,
}

impl Settings {
    /// Reads `NOVEL_OPENAI_KEY`, `NOVEL_OPENAI_BASE_URL`, `NOVEL_OPENAI_MODEL`,
    /// `NOVEL_OPENAI_TIMEOUT_MS`, `NOVEL_PACE_MS`, `NOVEL_CONCURRENCY` and
    /// `NOVEL_REQUESTS_PER_MINUTE`. With a key or a base URL an OpenAI-compatible provider writes,
    /// otherwise the built-in one.
    pub fn from_environment(read: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let environment = Environment { read };
        let pace = environment.number(
            "NOVEL_PACE_MS",
            60_000,
            "milliseconds a word, from 1 to 60000",
        )?;
        let concurrency = environment.number(
            "NOVEL_CONCURRENCY",
            10_000,
            "calls at once, from 1 to 10000",
        )?;
        let per_minute = environment.number(
            "NOVEL_REQUESTS_PER_MINUTE",
            1_000_000,
            "calls, from 1 to 1000000",
        )?;

        Ok(Self {
            openai: environment.openai()?,
            pace: pace.map(|ms| Duration::from_millis(ms.into())),
            concurrency: concurrency.map_or(CONCURRENCY, |calls| calls as usize),
            requests_per_minute: per_minute.unwrap_or(REQUESTS_PER_MINUTE),
        })
    }

    /// The provider of these settings.
    pub fn provider(&self) -> Result<Arc<dyn Provider>, ProviderError> {
        Ok(match (&self.openai, self.pace) {
            (Some(openai), _) => Arc::new(OpenAi::new(openai.clone())?),
            (None, Some(pace)) => Arc::new(Offline::paced(pace)),
            (None, None) => Arc::new(Offline::default()),
        })
    }
}

/// The variables of the environment. Empty ones count as missing.
struct Environment<R> {
    read: R,
}

impl<R: Fn(&str) -> Option<String>> Environment<R> {
    fn text(&self, name: &str) -> Option<String> {
        (self.read)(name).filter(|value| !value.trim().is_empty())
    }

    fn number(
        &self,
        name: &'static str,
        max: u32,
        allowed: &'static str,
    ) -> Result<Option<u32>, SettingsError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };

        match text.trim().parse() {
            Ok(number) if (1..=max).contains(&number) => Ok(Some(number)),
            Ok(_) | Err(_) => Err(SettingsError { name, allowed }),
        }
    }

    /// The OpenAI-compatible provider, if there is a key or a base URL.
    fn openai(&self) -> Result<Option<OpenAiSettings>, SettingsError> {
        let silence = self.number(
            "NOVEL_OPENAI_TIMEOUT_MS",
            3_600_000,
            "milliseconds, from 1 to 3600000",
        )?;
        let key = self.text("NOVEL_OPENAI_KEY");
        let base_url = self.text("NOVEL_OPENAI_BASE_URL");
        if key.is_none() && base_url.is_none() {
            return Ok(None);
        }

        let base_url = base_url.unwrap_or_else(|| BASE_URL.to_owned());
        if !base_url.starts_with("http://") && !base_url.starts_with("https://") {
            return Err(SettingsError {
                name: "NOVEL_OPENAI_BASE_URL",
                allowed: "http://… or https://…",
            });
        }

        let model = self.text("NOVEL_OPENAI_MODEL");
        Ok(Some(OpenAiSettings {
            base_url,
            key,
            model: model.unwrap_or_else(|| MODEL.to_owned()),
            silence: silence.map_or(SILENCE, |ms| Duration::from_millis(ms.into())),
        }))
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
    fn the_built_in_provider_is_the_default() {
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
    fn an_invalid_variable_is_named() {
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
