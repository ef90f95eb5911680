//! SQL stands in files of its own and names its columns.

use crate::repository::{File, check_below};
use crate::{expect_none, file};

#[test]
fn no_sql_is_put_together_from_strings() {
    expect_none(
        "put the statement into sql/ and bind the values",
        check_below("crates/store/src", built_sql_violations),
    );
}

#[test]
fn every_statement_names_its_columns() {
    let in_sql_folder = |file: &File| {
        if file.path.contains("/sql/") {
            unnamed_column_violations(file)
        } else {
            vec![]
        }
    };

    expect_none(
        "name the columns",
        check_below("crates/store/src", in_sql_folder),
    );
}

/// Reads each whole call of `format!`, which may span lines.
fn built_sql_violations(file: &File) -> Vec<String> {
    if file.extension() != "rs" {
        return vec![];
    }

    let is_keyword = |word: &str| ["SELECT", "INSERT", "UPDATE", "DELETE"].contains(&word);
    let is_separator = |c: char| !c.is_alphanumeric() && c != '_';
    let calls = file
        .text
        .match_indices("format!(")
        .map(|(at, _)| at)
        .filter(|at| !file.is_in_comment(*at));
    let with_sql = calls.filter(|at| call_at(&file.text, *at).split(is_separator).any(is_keyword));

    with_sql.map(|at| file.line_of(at)).collect()
}

/// The text from here to the parenthesis that closes the first one opened.
fn call_at(text: &str, start: usize) -> &str {
    let mut depth = 0_usize;
    for (offset, character) in text[start..].char_indices() {
        if character == '(' {
            depth += 1;
        } else if character == ')' {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return &text[start..start + offset];
            }
        }
    }

    &text[start..]
}

/// A `*` in a list of columns, and an INSERT without one.
fn unnamed_column_violations(file: &File) -> Vec<String> {
    let code: Vec<&str> = file
        .text
        .lines()
        .map(|line| line.split("--").next().unwrap_or(""))
        .collect();
    let mut spaced = code.join("\n").to_uppercase();

    for mark in ["(", ")", ",", "*", ";"] {
        spaced = spaced.replace(mark, &format!(" {mark} "));
    }

    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let token = |at: usize| tokens.get(at).copied().unwrap_or("");
    let mut violations = Vec::new();

    for at in 1..tokens.len() {
        let before = token(at - 1);
        let starts_a_column = ["SELECT", "DISTINCT", "ALL", "RETURNING", ","].contains(&before)
            || before.ends_with('.');
        if token(at) == "*" && starts_a_column {
            violations.push(format!("{}: `{before} *`", file.path));
        }

        let verbs = &tokens[at.saturating_sub(3)..at];
        let is_insert = token(at) == "INTO"
            && verbs
                .iter()
                .any(|verb| ["INSERT", "REPLACE"].contains(verb));
        let list_at = if token(at + 2) == "AS" {
            at + 4
        } else {
            at + 2
        };

        if is_insert && (token(list_at) != "(" || token(list_at + 1) == "SELECT") {
            violations.push(format!(
                "{}: INSERT INTO {} lists no columns",
                file.path,
                token(at + 1).to_lowercase()
            ));
        }
    }

    violations
}

#[test]
fn sql_built_with_format_is_found_even_across_lines() {
    let text = "let a = format!(\"SELECT {x}\");\n\
                let b = format!(\n    \"{} (DELETE)\",\n    y,\n);\n\
                let c = format!(\"cannot {verb}\", verb = (\"x\")); // SELECT\n\
                // format!(\"UPDATE\")\nlet d = format!(\"SELECTED\");\n";
    let violations = built_sql_violations(&file("a.rs", text));
    assert_eq!(
        violations,
        [
            "a.rs:1: let a = format!(\"SELECT {x}\");",
            "a.rs:2: let b = format!("
        ]
    );
}

#[test]
fn columns_that_are_not_named_are_found() {
    let offends = |sql: &str| !unnamed_column_violations(&file("a.sql", sql)).is_empty();
    for sql in [
        "select\n * from t",
        "SELECT DISTINCT * FROM t",
        "SELECT id, t.* FROM t",
        "DELETE FROM t RETURNING *",
        "INSERT INTO t VALUES (1)",
        "INSERT OR IGNORE INTO t SELECT a FROM b",
        "INSERT INTO t (SELECT a FROM b)",
    ] {
        assert!(offends(sql), "{sql}");
    }

    for sql in [
        "SELECT count(*), a * 2, 3*b FROM t",
        "SELECT a -- not *, ever\nFROM t",
        "INSERT INTO t(a, b) SELECT a, b FROM u",
        "INSERT INTO t AS x (a) VALUES (?)",
    ] {
        assert!(!offends(sql), "{sql}");
    }
}
