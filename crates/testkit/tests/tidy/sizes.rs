//! Files of a size that one reads in one sitting.

use crate::repository::{File, check_all};
use crate::{expect_none, file};

/// The most lines of a file, by extension.
const LINES: &[(&str, usize)] = &[("rs", 700), ("sql", 400)];

/// The most words of the two documents that everybody reads first.
const WORDS: &[(&str, usize)] = &[("README.md", 1_000), ("ARCHITECTURE.md", 1_500)];

#[test]
fn files_fit_a_sitting() {
    expect_none("split the file", check_all(line_violations));
}

#[test]
fn the_first_documents_are_short() {
    expect_none("shorten the document", check_all(word_count_violations));
}

fn line_violations(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    let exceeded = LINES
        .iter()
        .filter(|(extension, most)| *extension == file.extension() && lines > *most);
    exceeded
        .map(|(_, most)| format!("{}: {lines} lines, at most {most}", file.path))
        .collect()
}

fn word_count_violations(file: &File) -> Vec<String> {
    let count = file.text.split_whitespace().count();
    let exceeded = WORDS
        .iter()
        .filter(|(path, most)| *path == file.path && count > *most);
    exceeded
        .map(|(path, most)| format!("{path}: {count} words, at most {most}"))
        .collect()
}

#[test]
fn a_file_is_too_long_from_the_first_line_over_the_limit() {
    assert!(line_violations(&file("a.rs", &"x\n".repeat(700))).is_empty());
    assert_eq!(
        line_violations(&file("a.rs", &"x\n".repeat(701))),
        ["a.rs: 701 lines, at most 700"]
    );
    assert_eq!(
        line_violations(&file("a.sql", &"x\n".repeat(401))),
        ["a.sql: 401 lines, at most 400"]
    );

    assert!(line_violations(&file("a.md", &"x\n".repeat(9000))).is_empty());
}

#[test]
fn a_document_is_too_long_from_the_first_word_over_the_limit() {
    assert!(word_count_violations(&file("README.md", &"x ".repeat(1_000))).is_empty());
    assert_eq!(
        word_count_violations(&file("README.md", &"x\n".repeat(1_001))),
        ["README.md: 1001 words, at most 1000"]
    );
    assert!(word_count_violations(&file("docs/a.md", &"x ".repeat(9_000))).is_empty());
}
