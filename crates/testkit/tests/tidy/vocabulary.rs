//! The project speaks the field's language. These rules refuse words of a private dialect: some
//! anywhere, others as names in code.

use crate::repository::{File, check_all};
use crate::rust::{after_keyword, body_after, is_production, without_literals, word_at};
use crate::{expect_none, file};

/// Refused everywhere: in code, SQL, documents, configuration and scripts.
const REFUSED: &[&str] = &[
    "answerer",
    "answerers",
    "bell",
    "bells",
    "census",
    "doorbell",
    "ringer",
    "ringing",
    "rung",
    "scribe",
    "tallier",
    "tallies",
    "tally",
    "whoever",
];

/// Refused as a word in the name of a type, a module, a function or a field.
const REFUSED_IN_NAMES: &[&str] = &[
    "bell", "brought", "company", "desk", "door", "ear", "ears", "hear", "heard", "heart", "held",
    "kept", "lines", "owed", "parts", "patience", "people", "places", "ring", "rooms", "seat",
    "stage", "starving", "told", "turns", "words",
];

/// Names that are allowed, each with the reason.
const ALLOWED_NAMES: &[(&str, &str)] = &[
    ("from_request_parts", "a method of axum"),
    ("into_parts", "the name that http uses for taking apart"),
    ("CountWords", "the task of the quick start counts words"),
];

/// This file has to name what it refuses.
const OWN_PATH: &str = "crates/testkit/tests/tidy/vocabulary.rs";

#[test]
fn no_file_uses_a_refused_word() {
    expect_none(
        "use the field's word, see ARCHITECTURE.md",
        checked(word_violations),
    );
}

#[test]
fn no_name_contains_a_refused_word() {
    expect_none("name it for what it is", checked(name_violations));
}

fn checked(rule: impl Fn(&File) -> Vec<String>) -> Vec<String> {
    check_all(|file| {
        if file.path == OWN_PATH {
            return vec![];
        }
        rule(file)
    })
}

fn word_violations(file: &File) -> Vec<String> {
    let is_separator = |character: char| !character.is_ascii_alphanumeric();
    let mut violations = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let words = line.split(is_separator).flat_map(segments);
        for word in words.filter(|word| REFUSED.contains(&word.as_str())) {
            violations.push(format!("{}:{}: {word}", file.path, number + 1));
        }
    }

    violations
}

fn name_violations(file: &File) -> Vec<String> {
    if file.extension() != "rs" {
        return vec![];
    }

    let code = without_literals(&file.text);
    let mut names = Vec::new();
    for keyword in ["fn", "struct", "enum", "trait", "mod", "type"] {
        for at in after_keyword(&code, keyword) {
            names.push((at, word_at(&code, at)));
        }
    }
    for at in after_keyword(&code, "struct") {
        names.extend(fields_of(&code, at));
    }
    names.sort_unstable();

    let is_refused = |name: &str| {
        let is_allowed = ALLOWED_NAMES.iter().any(|(allowed, _)| *allowed == name);
        let is_sentence = !is_production(&file.path) && name.split('_').count() > 4;
        let mut refused = segments(name)
            .into_iter()
            .filter(|word| REFUSED_IN_NAMES.contains(&word.as_str()));
        !is_allowed && !is_sentence && refused.next().is_some()
    };
    let refused = names.iter().filter(|(_, name)| is_refused(name));
    refused
        .map(|(at, name)| {
            let line = code[..*at].matches('\n').count() + 1;
            format!("{}:{line}: {name}", file.path)
        })
        .collect()
}

/// The names of a struct's fields and where they stand.
fn fields_of(code: &str, at: usize) -> Vec<(usize, &str)> {
    let Some((start, end)) = body_after(code, at) else {
        return vec![];
    };

    let mut fields = Vec::new();
    let mut line_at = start + 1;
    for line in code[start + 1..end].split_inclusive('\n') {
        let declaration = line.trim_start();
        let indent = line.len() - declaration.len();
        let visibility = match declaration.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => 3 + rest.find(')').map_or(0, |end| end + 2),
            Some(rest) if rest.starts_with(' ') => 4,
            _ => 0,
        };

        let name_at = line_at + indent + visibility;
        let name = word_at(code, name_at.min(end));
        let rest = &code[(name_at + name.len()).min(end)..end];
        if !name.is_empty() && rest.starts_with(':') && !rest.starts_with("::") {
            fields.push((name_at, name));
        }
        line_at += line.len();
    }

    fields
}

/// The words of a name in snake, camel or screaming case, in lower case.
fn segments(name: &str) -> Vec<String> {
    let mut segments = Vec::new();
    for part in name.split('_') {
        let mut word = String::new();
        let mut was_lower = false;
        for character in part.chars() {
            if character.is_ascii_uppercase() && was_lower {
                segments.push(std::mem::take(&mut word));
            }
            was_lower = !character.is_ascii_uppercase();
            word.push(character.to_ascii_lowercase());
        }
        segments.push(word);
    }

    segments.retain(|segment| !segment.is_empty());
    segments
}

#[test]
fn a_refused_word_is_found_in_any_text() {
    let text =
        "Ring the Bells.\nlet DOORBELL_MS = 1;\nreadTallies() -- census_a\na bellow, a rungs\n";
    assert_eq!(
        word_violations(&file("a.sql", text)),
        [
            "a.sql:1: bells",
            "a.sql:2: doorbell",
            "a.sql:3: tallies",
            "a.sql:3: census"
        ]
    );
}

#[test]
fn a_refused_name_is_found_in_types_modules_functions_and_fields() {
    let text = "struct Held { told: u8 }\nstruct A<T> {\n    pub(crate) kept_until: T,\n    \
                pub seat: u8,\n    value: B::Parts,\n}\nmod stage;\n\
                fn hear(parts: u8) { let words = 1; }\nenum LogTurns {}\n\
                fn from_request_parts() {}\nfn lineage() {}\n";
    assert_eq!(
        name_violations(&file("crates/a/src/a.rs", text)),
        [
            "crates/a/src/a.rs:1: Held",
            "crates/a/src/a.rs:1: told",
            "crates/a/src/a.rs:3: kept_until",
            "crates/a/src/a.rs:4: seat",
            "crates/a/src/a.rs:7: stage",
            "crates/a/src/a.rs:8: hear",
            "crates/a/src/a.rs:9: LogTurns",
        ]
    );
}

#[test]
fn the_sentence_of_a_test_may_use_ordinary_words() {
    let text = "fn a_lock_that_is_held_blocks() {}\nfn held_lock() {}\n";
    assert_eq!(
        name_violations(&file("crates/a/tests/a.rs", text)),
        ["crates/a/tests/a.rs:2: held_lock"]
    );
    assert_eq!(name_violations(&file("crates/a/src/a.rs", text)).len(), 2);
}
