//! The part of STYLE.md that a machine can check.
//!
//! Each rule is a pure function from names and texts to the list of its violations. One test feeds
//! it this repository, and another feeds it planted violations, so that a rule cannot stop working
//! unnoticed. The rules skip `target` and `generated` folders and never change a file.

mod bodies;
mod databases;
mod documents;
mod layering;
mod machine_paths;
mod repository;
mod rust;
mod sizes;
mod sql;
mod vocabulary;

/// Fails with all violations and how to remedy them.
fn expect_none(remedy: &str, violations: Vec<String>) {
    assert!(
        violations.is_empty(),
        "{remedy}:\n  {}",
        violations.join("\n  ")
    );
}

/// A file for planted violations.
fn file(path: &str, text: &str) -> repository::File {
    repository::File {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}
