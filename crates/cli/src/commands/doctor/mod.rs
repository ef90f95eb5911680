//! `longhaul doctor`: looks at everything that a node needs, changes nothing that matters, and says what to do.

mod fleet;
mod machine;
mod store;

use anyhow::bail;
use serde::Serialize;

use super::config_file::ConfigFile;
use crate::{
    client::Screen,
    config::{self, IdentityKind},
};

/// What `doctor` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Ends with an error when a check fails. Example:
  longhaul doctor --json | jq '.checks[] | select(.state != \"ok\")'")]
pub struct Doctor {
    #[command(flatten)]
    config: ConfigFile,
    /// Answers with JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Warn,
    Fail,
}

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// What was looked at, what was found, and what to do about it.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Ok,
            found: found.into(),
            advice: None,
        }
    }

    fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Warn,
            found: found.into(),
            advice: Some(advice.into()),
        }
    }

    fn fail(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Fail,
            found: found.into(),
            advice: Some(advice.into()),
        }
    }
}

pub async fn run(doctor: Doctor) -> anyhow::Result<()> {
    let checks = examine(&doctor).await;
    show(&checks, doctor.json)?;
    let failed = checks
        .iter()
        .filter(|check| check.state == State::Fail)
        .count();
    if failed > 0 {
        bail!("{failed} of {} checks failed", checks.len());
    }
    Ok(())
}

async fn examine(doctor: &Doctor) -> Vec<Check> {
    let config = match config::load(&doctor.config.sources()) {
        Ok(config) => config,
        Err(error) => {
            let advice = "mend it; docs/configuration.md has every key";
            return vec![Check::fail("configuration", format!("{error:#}"), advice)];
        }
    };
    let mut checks = vec![Check::ok("configuration", "every key is known and fits")];
    checks.push(match config.check_listening() {
        Ok(()) => {
            let mode = config.identity.mode.as_str();
            Check::ok(
                "exposure",
                format!("{} with identity.mode {mode}", config.http.listen),
            )
        }
        Err(error) => Check::fail("exposure", error.to_string(), "the API would not start"),
    });
    checks.push(machine::port(config.http.listen).await);
    let is_asked_for_tokens = config.identity.mode == IdentityKind::Tokens;
    checks.extend(store::examine(&config, is_asked_for_tokens).await);
    checks.extend(fleet::examine(&config).await);
    checks.extend(machine::folders(&config));
    checks.push(machine::handles(&config));
    checks
}

fn show(checks: &[Check], is_json: bool) -> std::io::Result<()> {
    let screen = Screen::new(true);
    if is_json {
        let states = [State::Fail, State::Warn];
        let worst = states
            .into_iter()
            .find(|state| checks.iter().any(|check| check.state == *state));
        return screen
            .line(serde_json::json!({ "state": worst.unwrap_or(State::Ok), "checks": checks }));
    }
    for check in checks {
        screen.line(format_args!(
            "{:4}  {:13}  {}",
            check.state.as_str(),
            check.name,
            check.found
        ))?;
        if let Some(advice) = &check.advice {
            screen.line(format_args!("{:21}→ {advice}", ""))?;
        }
    }
    Ok(())
}
