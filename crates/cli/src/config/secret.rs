//! Secrets, and URLs that may hold a password. `Display` and `Debug` leave the secret out.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A URL whose password is not shown by accident.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretUrl(String);

impl SecretUrl {
    pub fn new(url: &str) -> Self {
        Self(url.to_owned())
    }

    /// The whole URL, to connect with.
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

/// A secret text, shown as `***`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The URL with `***` for its password and for every parameter: some drivers take passwords there.
fn masked(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };

    // A password may hold an `@`, or a `?` that should have been escaped: the last `@` ends it.
    // Where a parameter has an `@`, this hides too much rather than too little.
    let (user, rest) = match rest.rsplit_once('@') {
        Some((user, rest)) => (format!("{}@", masked_user(user)), rest),
        None => (String::new(), rest),
    };

    let (host, query) = match rest.split_once('?') {
        Some((host, query)) => (host, format!("?{}", masked_query(query))),
        None => (rest, String::new()),
    };

    format!("{scheme}{user}{host}{query}")
}

fn masked_user(user: &str) -> String {
    match user.split_once(':') {
        Some((name, _)) => format!("{name}:***"),
        None => user.to_owned(),
    }
}

fn masked_query(query: &str) -> String {
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) => format!("{name}=***"),
        None => pair.to_owned(),
    });

    pairs.collect::<Vec<_>>().join("&")
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
