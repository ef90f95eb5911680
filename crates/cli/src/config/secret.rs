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
    let (plain, query) = url.split_once('?').map_or((url, None), |(plain, query)| (plain, Some(query)));
    let mut shown = match plain.split_once("://") {
        Some((scheme, rest)) => {
            // A password may hold an `@` of its own: the last one ends it.
            let (user, host) = rest.rsplit_once('@').map_or((None, rest), |(user, host)| (Some(user), host));
            let user = user.map(|user| user.split_once(':').map_or(user.to_owned(), |(name, _)| format!("{name}:***")));
            format!("{scheme}://{}{host}", user.map_or(String::new(), |user| user + "@"))
        }
        None => plain.to_owned(),
    };
    if let Some(query) = query {
        let names = query
            .split('&')
            .map(|pair| pair.split_once('=').map_or(pair.to_owned(), |(name, _)| format!("{name}=***")));
        shown = format!("{shown}?{}", names.collect::<Vec<_>>().join("&"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            ("postgres://u:s3cret@db:5432/tasks", "postgres://u:***@db:5432/tasks"),
            ("postgres://u:s3c@ret@db/tasks?password=s3cret&x", "postgres://u:***@db/tasks?password=***&x"),
            ("mysql://u@db/tasks", "mysql://u@db/tasks"),
            ("sqlite://data/longhaul.db", "sqlite://data/longhaul.db"),
            ("local", "local"),
        ] {
            let url = SecretUrl::new(url);
            assert_eq!((url.to_string(), format!("{url:?}")), (shown.to_owned(), format!("{shown:?}")));
        }
    }
}
