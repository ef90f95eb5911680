//! Secrets, and URLs that may hold a password. They are shown without it, whoever shows them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A URL whose password nobody sees by accident.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretUrl(String);

impl SecretUrl {
    pub fn new(url: &str) -> Self {
        Self(url.to_owned())
    }

    /// The whole of it, for whoever connects.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What it starts with: `postgres`.
    pub fn scheme(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked(&self.0))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", masked(&self.0))
    }
}

/// A text that nobody sees by accident.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// The whole of it, for whoever needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The URL with `***` for its password, and for every parameter: some drivers take passwords there.
fn masked(url: &str) -> String {
    let (scheme, rest) = url
        .split_once("://")
        .map_or((None, url), |(scheme, rest)| (Some(scheme), rest));
    // A password may hold an `@`, or a `?` that should have been escaped: the last `@` of all ends it. Where a parameter
    // has an `@`, too much is hidden and not too little.
    let (user, rest) = rest
        .rsplit_once('@')
        .map_or((None, rest), |(user, rest)| (Some(user), rest));
    let user = user.map(|user| {
        user.split_once(':')
            .map_or(user.to_owned(), |(name, _)| format!("{name}:***"))
    });
    let (place, query) = rest
        .split_once('?')
        .map_or((rest, None), |(place, query)| (place, Some(query)));
    let mut shown = scheme.map_or(String::new(), |scheme| format!("{scheme}://"));
    shown += &user.map_or(String::new(), |user| user + "@");
    shown += place;
    if let Some(query) = query {
        let name = |pair: &str| {
            pair.split_once('=')
                .map_or(pair.to_owned(), |(name, _)| format!("{name}=***"))
        };
        shown = format!(
            "{shown}?{}",
            query.split('&').map(name).collect::<Vec<_>>().join("&")
        );
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            (
                "postgres://u:s3cret@db:5432/tasks",
                "postgres://u:***@db:5432/tasks",
            ),
            (
                "postgres://u:s3c@ret@db/tasks?password=s3cret&x",
                "postgres://u:***@db/tasks?password=***&x",
            ),
            (
                "postgres://u:s3?cr#et@db/tasks",
                "postgres://u:***@db/tasks",
            ),
            (
                "postgres://u:s3?cr=e&t@db/tasks?sslmode=require",
                "postgres://u:***@db/tasks?sslmode=***",
            ),
            (
                "postgres://u:s3cret@db/tasks?password=a@b",
                "postgres://u:***@b",
            ),
            ("u:s3cret@db/tasks", "u:***@db/tasks"),
            ("mysql://u@db/tasks", "mysql://u@db/tasks"),
            ("sqlite://data/longhaul.db", "sqlite://data/longhaul.db"),
            ("local", "local"),
        ] {
            let url = SecretUrl::new(url);
            assert_eq!(
                (url.to_string(), format!("{url:?}")),
                (shown.to_owned(), format!("{shown:?}"))
            );
        }
    }
}
