//! `longhaul doctor`: checks everything that a node needs and says what to do. It must change
//! nothing.

mod fleet;
mod machine;
mod store;

use anyhow::bail;
use serde::Serialize;

use super::config_file::ConfigFile;
use crate::{
    client::Screen,
    config::{self, Config, IdentityKind},
};

/// Options of `longhaul doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Fails if a check fails. Example:
  longhaul doctor --json | jq '.checks[] | select(.state != \"ok\")'")]
pub struct Doctor {
    #[command(flatten)]
    config: ConfigFile,
    /// Print JSON, for scripts.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckState {
    Ok,
    Warn,
    Fail,
}

impl CheckState {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// What was checked, what was found, and what to do about it.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: CheckState,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            state: CheckState::Ok,
            found: found.into(),
            advice: None,
        }
    }

    fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            name,
            state: CheckState::Warn,
            found: found.into(),
            advice: Some(advice.into()),
        }
    }

    fn fail(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            name,
            state: CheckState::Fail,
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
        .filter(|check| check.state == CheckState::Fail)
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
            let advice = "correct it; docs/configuration.md lists all keys";
            return vec![Check::fail("configuration", format!("{error:#}"), advice)];
        }
    };

    let mut checks = vec![Check::ok("configuration", "all keys are known and valid")];
    checks.push(exposure(&config));
    checks.extend(gateway(&config));
    checks.push(machine::port(config.http.listen).await);
    checks.extend(store::examine(&config).await);
    checks.extend(fleet::examine(&config).await);
    checks.extend(machine::folders(&config));
    checks.push(machine::handles(&config));

    checks
}

/// Whether the API may listen where it is configured to.
fn exposure(config: &Config) -> Check {
    let mode = config.identity.mode.as_str();

    match config.check_listening() {
        Ok(()) => Check::ok(
            "exposure",
            format!("{} with identity.mode {mode}", config.http.listen),
        ),
        Err(error) => Check::fail("exposure", error.to_string(), "the API would not start"),
    }
}

/// Whether more than an address tells the gateway from a page in a browser.
fn gateway(config: &Config) -> Option<Check> {
    if config.identity.mode != IdentityKind::TrustedHeader {
        return None;
    }

    Some(if config.identity.trusts_every_page() {
        let found = "every name in Host is accepted, and the gateway has no secret";
        let advice = "set identity.hosts to the names of this API, or identity.gateway_secret: a \
                      page can give its own name the address of this API";
        Check::warn("gateway", found, advice)
    } else {
        Check::ok("gateway", "its calls have a listed name or a secret")
    })
}

fn show(checks: &[Check], is_json: bool) -> std::io::Result<()> {
    let screen = Screen::new(true);
    if is_json {
        let states = [CheckState::Fail, CheckState::Warn];
        let is_found = |state: &CheckState| checks.iter().any(|check| check.state == *state);
        let worst = states.into_iter().find(is_found).unwrap_or(CheckState::Ok);
        return screen.line(serde_json::json!({ "state": worst, "checks": checks }));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Identity;

    #[test]
    fn a_gateway_without_names_and_secret_is_a_warning() {
        let state = |hosts: &[&str]| {
            let config = Config {
                identity: Identity {
                    mode: IdentityKind::TrustedHeader,
                    hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
                    ..Identity::default()
                },
                ..Config::default()
            };
            gateway(&config).map(|check| check.state)
        };

        assert_eq!(state(&[]), Some(CheckState::Warn));
        assert_eq!(state(&["tasks.example"]), Some(CheckState::Ok));
        assert!(gateway(&Config::default()).is_none(), "tokens need neither");
    }
}
