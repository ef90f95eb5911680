//! Function bodies that can be read: lines that fit, one variable per `let`, and paragraphs.

use std::io;

use crate::repository::{File, check_all, files_below};
use crate::rust::{Function, functions, is_production, production_text, without_literals};
use crate::{expect_none, file};

const COLUMNS: usize = 100;

/// Lines that may be wider, because they hold a string that cannot be split.
const WIDE_LINES: usize = 20;

/// A function of this many lines needs paragraphs.
const LONG_BODY: usize = 15;

/// How many functions of that length may do without.
const UNBROKEN_FUNCTIONS: usize = 6;

/// The functions whose blank lines are counted have at least this many lines.
const COUNTED_BODY: usize = 12;

/// The least share of blank lines in them, in percent.
const BLANK_PERCENT: f64 = 8.0;

#[test]
fn code_fits_in_a_hundred_columns() {
    let wide = check_all(width_violations);
    let without_string = wide.iter().filter(|line| !line.contains('"'));
    expect_none("break the line", without_string.cloned().collect());
    assert!(
        wide.len() <= WIDE_LINES,
        "{} lines have more than {COLUMNS} columns, at most {WIDE_LINES} may:\n  {}",
        wide.len(),
        wide.join("\n  ")
    );
}

#[test]
fn each_let_binds_one_variable() {
    expect_none("write one let for each variable", check_all(parallel_lets));
}

#[test]
fn a_filter_looks_at_its_value() {
    expect_none("write an if", check_all(blind_filters));
}

#[test]
fn long_functions_have_paragraphs() {
    let mut unbroken = Vec::new();
    for (path, function) in production_functions().unwrap() {
        if is_unbroken(&function) {
            let Function { line, name, .. } = function;
            unbroken.push(format!("{path}:{line}: {name}"));
        }
    }

    assert!(
        unbroken.len() <= UNBROKEN_FUNCTIONS,
        "{} functions have no blank line, at most {UNBROKEN_FUNCTIONS} may:\n  {}",
        unbroken.len(),
        unbroken.join("\n  ")
    );
}

#[test]
fn bodies_have_enough_blank_lines() {
    let functions = production_functions().unwrap().into_iter();
    let functions: Vec<Function> = functions.map(|(_, function)| function).collect();
    let percent = blank_percent(&functions);
    assert!(
        percent >= BLANK_PERCENT,
        "{percent:.1} % of the lines in functions of {COUNTED_BODY} and more lines are blank, \
         at least {BLANK_PERCENT} % have to be"
    );
}

/// The functions of all production files, each with the path of its file.
fn production_functions() -> io::Result<Vec<(String, Function)>> {
    let is_read = |file: &&File| file.extension() == "rs" && is_production(&file.path);
    let files = files_below("")?;

    let mut all = Vec::new();
    for file in files.iter().filter(is_read) {
        for function in functions(production_text(file)) {
            all.push((file.path.clone(), function));
        }
    }

    Ok(all)
}

fn width_violations(file: &File) -> Vec<String> {
    if file.extension() != "rs" {
        return vec![];
    }

    let lines = file.text.lines().enumerate();
    let wide = lines.filter(|(_, line)| line.chars().count() > COLUMNS);
    wide.map(|(at, line)| format!("{}:{}: {}", file.path, at + 1, line.trim()))
        .collect()
}

/// `let (a, b) = (x, y);`, which is two statements.
fn parallel_lets(file: &File) -> Vec<String> {
    if file.extension() != "rs" {
        return vec![];
    }

    let code = without_literals(&file.text);
    let lets = code.match_indices("let (").map(|(at, _)| at);
    let parallel = lets.filter(|at| is_parallel(&code[at + "let ".len()..]));
    parallel.map(|at| violation(file, &code, at)).collect()
}

/// Whether a tuple pattern is followed by `= (x, y);`.
fn is_parallel(rest: &str) -> bool {
    let Some((_, after_pattern)) = split_parentheses(rest) else {
        return false;
    };
    let Some((between, value)) = after_pattern.split_once('=') else {
        return false;
    };
    let has_type = between.trim_start().starts_with(": (");
    if !between.trim().is_empty() && !has_type {
        return false;
    }

    match split_parentheses(value.trim_start()) {
        Some((_, end)) => end.trim_start().starts_with(';'),
        None => false,
    }
}

/// Splits behind the parenthesis that closes the first one, if the text starts with one.
fn split_parentheses(text: &str) -> Option<(&str, &str)> {
    if !text.starts_with('(') {
        return None;
    }

    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(text.split_at(at + 1));
        }
    }

    None
}

/// `.filter(|_| condition)`, which is an `if`.
fn blind_filters(file: &File) -> Vec<String> {
    if file.extension() != "rs" {
        return vec![];
    }

    let code = without_literals(&file.text);
    let filters = code.match_indices(".filter(|_").map(|(at, _)| at);
    filters.map(|at| violation(file, &code, at)).collect()
}

/// The line of the file that a byte of its code is in. Both have the same lines, but not the same
/// bytes.
fn violation(file: &File, code: &str, at: usize) -> String {
    let number = code[..at].matches('\n').count();
    let line = file.text.lines().nth(number).unwrap_or("").trim();
    format!("{}:{}: {line}", file.path, number + 1)
}

/// A long body without a blank line. A body that is one expression needs none, so only one with
/// more than three lines at the level of its statements counts: four or eight columns in a free
/// function, eight in a method.
fn is_unbroken(function: &Function) -> bool {
    if function.body.len() < LONG_BODY || function.blanks > 0 {
        return false;
    }

    let indent_of = |line: &str| line.len() - line.trim_start().len();
    let inside = &function.body[1..function.body.len() - 1];
    let is_free = inside.first().is_some_and(|line| indent_of(line) < 8);
    let is_statement = |line: &&String| match indent_of(line) {
        _ if line.trim().is_empty() => false,
        4 => is_free,
        indent => indent == 8,
    };

    inside.iter().filter(is_statement).count() > 3
}

fn blank_percent(functions: &[Function]) -> f64 {
    let mut lines = 0_u32;
    let mut blank = 0_u32;
    for function in functions {
        if function.body.len() >= COUNTED_BODY {
            lines += u32::try_from(function.body.len() - 2).unwrap_or(u32::MAX);
            blank += u32::try_from(function.blanks).unwrap_or(u32::MAX);
        }
    }

    100.0 * f64::from(blank) / f64::from(lines.max(1))
}

#[test]
fn a_wide_line_is_found() {
    let at_limit = "x".repeat(COLUMNS);
    assert!(width_violations(&file("a.rs", &at_limit)).is_empty());
    assert!(width_violations(&file("a.rs", &"é".repeat(COLUMNS))).is_empty());
    assert_eq!(
        width_violations(&file("a.rs", &format!("{at_limit}x\n"))).len(),
        1
    );
    assert!(width_violations(&file("a.md", &"x".repeat(300))).is_empty());
}

#[test]
fn a_parallel_let_is_found() {
    let found = |code: &str| parallel_lets(&file("a.rs", code)).len();
    assert_eq!(found("let (a, b) = (1, 2);"), 1);
    assert_eq!(
        found("let (a, (b, c)): (u8, (u8, u8)) =\n    (1, (f(2), 3));"),
        1
    );
    assert_eq!(found("let (a, b) = pair;"), 0);
    assert_eq!(found("let (a, b) = (one, other).max();"), 0);
    assert_eq!(found("// let (a, b) = (1, 2);"), 0);
}

#[test]
fn a_filter_that_ignores_its_value_is_found() {
    let found = |code: &str| blind_filters(&file("a.rs", code)).len();
    assert_eq!(found("a.filter(|_| is_on)"), 1);
    assert_eq!(found("a.filter(|_value| is_on)"), 1);
    assert_eq!(found("a.filter(|value| value.is_on)"), 0);
    assert_eq!(found("\"a.filter(|_| is_on)\""), 0);
}

#[test]
fn a_long_function_without_paragraph_is_found() {
    let unbroken = |body: &str| {
        let text = format!("fn a() {{\n{body}}}\n");
        functions(&text)
            .iter()
            .filter(|one| is_unbroken(one))
            .count()
    };
    assert_eq!(unbroken(&"    a();\n".repeat(13)), 1);
    assert_eq!(unbroken(&"    a();\n".repeat(12)), 0, "short");
    assert_eq!(
        unbroken(&format!("    a();\n\n{}", "    a();\n".repeat(12))),
        0
    );

    let one_call = format!("    a(\n{}    )\n", "            b,\n".repeat(13));
    assert_eq!(unbroken(&one_call), 0);
}

#[test]
fn blank_lines_are_counted_in_longer_functions_only() {
    let text = format!(
        "fn a() {{\n{}\n}}\nfn b() {{\n\n\n}}\n",
        "    a();\n".repeat(9)
    );
    let percent = blank_percent(&functions(&text));
    assert!((percent - 10.0).abs() < 0.01, "{percent}");
}
