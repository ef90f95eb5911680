//! Rust code as the rules see it: without its strings and comments, and split into functions.

use crate::repository::File;

/// A function with a body. Its body starts in the line of the opening brace and ends in the line of
/// the closing one.
pub(crate) struct Function {
    pub(crate) name: String,
    /// The number of the body's first line, from 1.
    pub(crate) line: usize,
    /// The body's lines, without strings and comments.
    pub(crate) body: Vec<String>,
    /// How many lines inside the body are blank in the file.
    pub(crate) blanks: usize,
}

/// Whether a file belongs to what users run, as opposed to tests, benchmarks and examples.
pub(crate) fn is_production(path: &str) -> bool {
    let is_test_folder = |name: &str| {
        ["test", "tests", "testkit", "bench", "examples"].contains(&name)
            || name.ends_with("_tests")
    };
    let (folders, file) = path.rsplit_once('/').unwrap_or(("", path));

    !folders.split('/').any(is_test_folder)
        && !file.ends_with("tests.rs")
        && !file.ends_with("test.rs")
}

/// The production part of a file: everything before its test module.
pub(crate) fn production_text(file: &File) -> &str {
    let end = file.text.find("#[cfg(test)]\nmod tests");
    &file.text[..end.unwrap_or(file.text.len())]
}

/// The code with a space for each character of a string, a character literal or a comment. Lines
/// stay where they are.
pub(crate) fn without_literals(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < characters.len() {
        let length = literal_length(&characters[at..]);
        if length == 0 {
            code.push(characters[at]);
            at += 1;
            continue;
        }

        for character in &characters[at..at + length] {
            code.push(if *character == '\n' { '\n' } else { ' ' });
        }
        at += length;
    }

    code
}

/// The length of the string, character literal or comment that starts here, or zero.
fn literal_length(rest: &[char]) -> usize {
    match rest {
        ['/', '/', ..] => length_until(rest, 0, &['\n']) - 1,
        ['/', '*', ..] => length_until(rest, 2, &['*', '/']),
        ['r', '"' | '#', ..] => raw_string_length(rest),
        ['"', ..] => string_length(rest),
        ['\'', '\\', _, ..] => length_until(rest, 3, &['\'']),
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

/// The length up to and with the end mark. An unclosed literal ends one past the text.
fn length_until(rest: &[char], from: usize, end: &[char]) -> usize {
    let found = rest[from..]
        .windows(end.len())
        .position(|window| window == end);
    match found {
        Some(position) => from + position + end.len(),
        None if end == ['\n'] => rest.len() + 1,
        None => rest.len(),
    }
}

fn raw_string_length(rest: &[char]) -> usize {
    let hashes = rest[1..].iter().take_while(|mark| **mark == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return 0;
    }

    let mut end = vec!['"'];
    end.extend(std::iter::repeat_n('#', hashes));
    length_until(rest, 2 + hashes, &end)
}

fn string_length(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }

    rest.len()
}

/// The word that starts at a byte of the code.
pub(crate) fn word_at(code: &str, at: usize) -> &str {
    let rest = &code[at..];
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let end = rest.find(|character| !is_part(character));
    &rest[..end.unwrap_or(rest.len())]
}

/// Where a keyword stands as a word of its own, followed by a space: the bytes behind the space.
pub(crate) fn after_keyword(code: &str, keyword: &str) -> Vec<usize> {
    let pattern = format!("{keyword} ");
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let found = code.match_indices(&pattern);
    let whole = found.filter(|(at, _)| !code[..*at].ends_with(is_part));
    whole.map(|(at, _)| at + pattern.len()).collect()
}

pub(crate) fn functions(text: &str) -> Vec<Function> {
    let code = without_literals(text);
    let lines: Vec<&str> = text.lines().collect();

    let mut functions = Vec::new();
    for at in after_keyword(&code, "fn") {
        let Some((start, end)) = body_after(&code, at) else {
            continue;
        };

        let line = code[..start].matches('\n').count() + 1;
        let body: Vec<String> = code[start..end].split('\n').map(str::to_owned).collect();
        let last = line + body.len().saturating_sub(1);
        let inside = lines.get(line..last.saturating_sub(1)).unwrap_or_default();
        let blanks = inside.iter().filter(|line| line.trim().is_empty()).count();

        functions.push(Function {
            name: word_at(&code, at).to_owned(),
            line,
            body,
            blanks,
        });
    }

    functions
}

/// The bytes of the braces of the body of a function or type, or nothing when it has no braces.
pub(crate) fn body_after(code: &str, at: usize) -> Option<(usize, usize)> {
    let mut depth = 0_usize;
    let mut start = None;
    for (offset, character) in code[at..].char_indices() {
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => return None,
            '{' if depth == 0 => {
                start = Some(at + offset);
                break;
            }
            _ => {}
        }
    }

    let start = start?;
    Some((start, closing_brace(code, start)?))
}

fn closing_brace(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, character) in code[start..].char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(start + offset);
        }
    }

    None
}

#[test]
fn strings_characters_and_comments_are_left_out() {
    let text = "let a = \"fn \\\" x\"; // fn\nlet b = r#\"fn \" x\"#; /* fn\n */ \
                let c = '\\''; f::<'a>('{')";
    let code = without_literals(text);
    assert_eq!(code.len(), text.len());
    assert_eq!(
        code.split_whitespace().collect::<Vec<_>>().join(" "),
        "let a = ; let b = ; let c = ; f::<'a>( )"
    );
    assert_eq!(without_literals("a // b"), "a     ");
}

#[test]
fn functions_are_found_with_their_bodies() {
    let text = "trait T {\n    fn a(&self);\n    fn b(&self) {\n        1\n\n    }\n}\n\
                fn c(x: [u8; 2]) -> u8 {\n}\n";
    let found = functions(text);
    let summary: Vec<_> = found
        .iter()
        .map(|one| (one.name.as_str(), one.line, one.body.len(), one.blanks))
        .collect();
    assert_eq!(summary, [("b", 3, 4, 1), ("c", 8, 2, 0)]);
}

#[test]
fn tests_and_benchmarks_are_not_production() {
    assert!(is_production("crates/node/src/claimer.rs"));
    for path in [
        "crates/node/tests/a.rs",
        "crates/testkit/src/clock.rs",
        "bench/http/src/main.rs",
        "crates/node/src/slots/tests.rs",
        "crates/node/src/claim_tests/a.rs",
    ] {
        assert!(!is_production(path), "{path}");
    }
}
