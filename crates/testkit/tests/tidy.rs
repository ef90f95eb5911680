//! The part of STYLE.md that a machine can check.
//!
//! Each rule is a pure function from names and texts to the list of everything that offends it. One test
//! feeds it this repository, another a planted violation, so that a rule cannot go blind unnoticed. The
//! rules never look at `target` and `generated` folders, and never change a file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use serde_json::Value;

/// Which crates of the workspace a crate may use. The facade may use all, and so may the bench tools.
const MAY_USE: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("engine", &["domain"]),
    ("store", &["domain"]),
    ("transport", &["domain"]),
    ("api", &["domain"]),
    ("worker", &["domain", "engine"]),
    ("server", &["domain", "engine", "api"]),
    ("testkit", &["domain"]),
    (
        "longhaul",
        &[
            "domain",
            "engine",
            "store",
            "transport",
            "api",
            "worker",
            "server",
            "testkit",
        ],
    ),
    ("novel", &["longhaul"]),
    ("cli", &["longhaul", "novel", "api"]),
];

/// Tests of every crate may use these besides.
const TESTS_MAY_USE: &[&str] = &["domain", "testkit"];

/// The domain decides and does nothing else: no runtime, no database, no network.
const BANNED_IN_DOMAIN: &[&str] = &["tokio", "sqlx", "axum"];

/// A file must fit a sitting, a statement a screen or a few.
const LINE_LIMITS: &[(&str, usize)] = &[("rs", 700), ("sql", 400)];

const DATABASES: [&str; 3] = ["sqlite", "postgres", "mysql"];

/// Files that one database has alone, or lacks alone, each with the reason.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "crates/store/src/postgres/sql/claim_lanes.sql",
        "PostgreSQL claims in one statement, claim_tasks",
    ),
    (
        "crates/store/src/postgres/sql/claim_peek.sql",
        "PostgreSQL claims in one statement, claim_tasks",
    ),
    (
        "crates/store/src/postgres/sql/claim_pick.sql",
        "PostgreSQL claims in one statement, claim_tasks",
    ),
    (
        "crates/store/src/postgres/sql/claim_take.sql",
        "PostgreSQL claims in one statement, claim_tasks",
    ),
    (
        "crates/store/src/postgres/sql/complete_find.sql",
        "PostgreSQL's update says which rows it met",
    ),
    (
        "crates/store/src/postgres/sql/claim_tasks.sql",
        "the others claim lane by lane",
    ),
    (
        "crates/store/src/postgres/sql/named_pick.sql",
        "PostgreSQL claims in one statement, claim_named",
    ),
    (
        "crates/store/src/postgres/sql/claim_named.sql",
        "the others pick the rows first",
    ),
    (
        "crates/store/src/postgres/sql/claim_one.sql",
        "the others pick the rows first",
    ),
    (
        "crates/store/src/mysql/sql/named_find.sql",
        "a locking read would lock what it only looks at",
    ),
    (
        "crates/store/src/postgres/sql/insert_task.sql",
        "the others insert a lone task by the same statement",
    ),
    (
        "crates/store/src/mysql/sql/insert_alike.sql",
        "parameters have no numbers there, so each row names them all",
    ),
    (
        "crates/store/src/postgres/doorbell.rs",
        "only PostgreSQL has NOTIFY",
    ),
    (
        "crates/store/src/postgres/sql/ring_for_it.fragment",
        "only PostgreSQL has NOTIFY",
    ),
    (
        "crates/store/src/postgres/sql/taken.fragment",
        "only there do several statements claim",
    ),
    (
        "crates/store/src/mysql/sql/claim_heads.sql",
        "only there can a lane's head not be sought in the same statement",
    ),
    (
        "crates/store/src/postgres/claim.rs",
        "PostgreSQL claims in one statement",
    ),
    (
        "crates/store/src/sqlite/connection.rs",
        "the others are connected by sqlx's pools",
    ),
    (
        "crates/store/src/sqlite/guest.rs",
        "only SQLite's own driver is not the caller's",
    ),
    (
        "crates/store/src/sqlite/log_room.rs",
        "servers make room for their logs themselves",
    ),
    (
        "crates/store/src/sqlite/readers.rs",
        "the others have many writers",
    ),
    (
        "crates/store/src/sqlite/writer.rs",
        "the others have many writers and their own group commit",
    ),
    (
        "crates/store/migrations/postgres/0009_lane_by_index.sql",
        "only PostgreSQL reads a CHECK anew in each statement",
    ),
    (
        "crates/store/migrations/sqlite/0011_ids_of_nobody.sql",
        "only SQLite shows NULL as an empty text in hex()",
    ),
    (
        "crates/store/migrations/postgres/0010_lean_writes.sql",
        "only PostgreSQL pays for them",
    ),
    (
        "crates/store/migrations/mysql/0012_room_to_grow.sql",
        "only InnoDB logs whole pages when rows grow in them",
    ),
    (
        "crates/store/src/mysql/sql/append_tallies.sql",
        "JSON_TABLE is slow for a few rows",
    ),
];

/// Documents and their translations.
const TRANSLATIONS: &[(&str, &str)] = &[
    ("README.md", "README.zh-CN.md"),
    ("docs/quickstart.md", "docs/zh-CN/quickstart.md"),
];

/// Paths of somebody's machine. Written in two pieces so that this line is not one of them.
const MACHINE_PATHS: &[&str] = &[
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/wo", "rk/"),
];

// --- the rules, on this repository ---------------------------------------------------------------

#[test]
fn crates_depend_in_one_direction() {
    expect_none(
        "the table MAY_USE says who may use whom",
        layering_offenders(&members().unwrap()),
    );
}

#[test]
fn files_fit_a_sitting() {
    expect_none("split the file", all_files(length_offenders));
}

#[test]
fn the_three_databases_have_the_same_files() {
    let mut offenders = Vec::new();
    let mut differences = Vec::new();
    for (before, after, extension) in [
        ("crates/store/src", "sql", None),
        ("crates/store/migrations", "", None),
        ("crates/store/src", "", Some("rs")),
    ] {
        let folders = DATABASES.map(|database| Path::new(before).join(database).join(after));
        let missing = folders
            .iter()
            .filter(|folder| !root().join(folder).is_dir());
        offenders.extend(missing.map(|folder| format!("{} is missing", folder.display())));
        differences.extend(differences_between(
            &folders.map(|folder| listing(&folder, extension).unwrap()),
        ));
    }
    offenders.extend(unexplained(&differences, DIFFERENCES));
    expect_none(
        "add the twin, or a row with the reason to DIFFERENCES",
        offenders,
    );
}

#[test]
fn no_sql_is_put_together_from_strings() {
    expect_none(
        "put the statement into sql/ and bind the values",
        files_below("crates/store/src", built_sql_offenders),
    );
}

#[test]
fn every_statement_names_its_columns() {
    let in_sql_folder = |file: &File| {
        if file.path.contains("/sql/") {
            unnamed_column_offenders(file)
        } else {
            vec![]
        }
    };
    expect_none(
        "name the columns",
        files_below("crates/store/src", in_sql_folder),
    );
}

#[test]
fn links_between_documents_resolve() {
    let exists = |path: &Path| root().join(path).exists();
    expect_none(
        "mend or remove the link",
        all_files(|file| link_offenders(file, &exists)),
    );
}

#[test]
fn translations_have_the_commands_and_sections_of_their_originals() {
    let read = |path: &str| File {
        path: path.to_owned(),
        text: fs::read_to_string(root().join(path)).unwrap(),
    };
    let compare = |(original, translation): &(&str, &str)| {
        translation_offenders(&read(original), &read(translation))
    };
    expect_none(
        "translate what has changed",
        TRANSLATIONS.iter().flat_map(compare).collect(),
    );
}

#[test]
fn no_file_names_a_path_of_one_machine() {
    expect_none(
        "say it relative to the repository",
        all_files(machine_path_offenders),
    );
}

// --- each rule: from a file to what offends it ---------------------------------------------------

struct Member {
    name: String,
    folder: PathBuf,
    uses: Vec<Use>,
}

struct Use {
    name: String,
    only_in_tests: bool,
}

fn layering_offenders(members: &[Member]) -> Vec<String> {
    let mut offenders = Vec::new();
    for member in members
        .iter()
        .filter(|member| !member.name.starts_with("longhaul-bench-"))
    {
        let (name, short) = (&member.name, short_name(&member.name));
        let Some((_, allowed)) = MAY_USE.iter().find(|(row, _)| *row == short) else {
            offenders.push(format!(
                "{name} is not in MAY_USE: add a row that says which crates it may use"
            ));
            continue;
        };
        if !member.folder.ends_with(short) {
            offenders.push(format!(
                "{name} is in {:?}: a package is called longhaul-<folder>",
                member.folder
            ));
        }
        for used in &member.uses {
            let other = short_name(&used.name);
            let is_member = members.iter().any(|member| member.name == used.name);
            let is_allowed =
                allowed.contains(&other) || used.only_in_tests && TESTS_MAY_USE.contains(&other);
            if is_member && !is_allowed {
                let kind = if used.only_in_tests {
                    "dev-dependencies"
                } else {
                    "dependencies"
                };
                offenders.push(format!(
                    "{name} has {} in its {kind}, but may use only {allowed:?}",
                    used.name
                ));
            }
            if short == "domain"
                && !used.only_in_tests
                && BANNED_IN_DOMAIN.contains(&used.name.as_str())
            {
                offenders.push(format!("{name} must not depend on {}", used.name));
            }
        }
    }
    offenders
}

fn short_name(package: &str) -> &str {
    package.strip_prefix("longhaul-").unwrap_or(package)
}

fn length_offenders(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    let exceeded = LINE_LIMITS
        .iter()
        .filter(|(extension, most)| *extension == file.extension() && lines > *most);
    exceeded
        .map(|(_, most)| format!("{}: {lines} lines, at most {most}", file.path))
        .collect()
}

/// The files below one database's folder, named from there.
struct Listing {
    folder: PathBuf,
    names: BTreeSet<String>,
}

/// Pairs of the odd one out and what is odd about it: a file that one folder has, or lacks, alone.
fn differences_between(listings: &[Listing]) -> Vec<(String, &'static str)> {
    let names: BTreeSet<&String> = listings.iter().flat_map(|listing| &listing.names).collect();
    let mut differences = Vec::new();
    for name in names {
        let (having, lacking): (Vec<_>, Vec<_>) = listings
            .iter()
            .partition(|listing| listing.names.contains(name));
        let path_in = |listing: &Listing| listing.folder.join(name).display().to_string();
        let (odd, what) = if having.len() == 1 {
            (having, "has no twins")
        } else {
            (lacking, "is missing")
        };
        differences.extend(odd.into_iter().map(|listing| (path_in(listing), what)));
    }
    differences
}

fn unexplained(differences: &[(String, &str)], explained: &[(&str, &str)]) -> Vec<String> {
    let is_explained = |path: &str| {
        explained
            .iter()
            .any(|(row, reason)| *row == path && !reason.is_empty())
    };
    let is_real = |row: &str| differences.iter().any(|(path, _)| path == row);
    let unexplained = differences.iter().filter(|(path, _)| !is_explained(path));
    let outdated = explained.iter().filter(|(row, _)| !is_real(row));
    unexplained
        .map(|(path, what)| format!("{path} {what}"))
        .chain(outdated.map(|(row, _)| format!("{row} is in DIFFERENCES but differs no more")))
        .collect()
}

/// Looks at each whole call of `format!`, which may span lines.
fn built_sql_offenders(file: &File) -> Vec<String> {
    if file.extension() != "rs" {
        return vec![];
    }
    let is_keyword = |word: &str| ["SELECT", "INSERT", "UPDATE", "DELETE"].contains(&word);
    let is_between_words = |c: char| !c.is_alphanumeric() && c != '_';
    let calls = file
        .text
        .match_indices("format!(")
        .map(|(at, _)| at)
        .filter(|at| !file.is_in_comment(*at));
    let with_sql = calls.filter(|at| {
        call_at(&file.text, *at)
            .split(is_between_words)
            .any(is_keyword)
    });
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
fn unnamed_column_offenders(file: &File) -> Vec<String> {
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
    let mut offenders = Vec::new();
    for at in 1..tokens.len() {
        let before = token(at - 1);
        let starts_a_column = ["SELECT", "DISTINCT", "ALL", "RETURNING", ","].contains(&before)
            || before.ends_with('.');
        if token(at) == "*" && starts_a_column {
            offenders.push(format!("{}: `{before} *`", file.path));
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
            offenders.push(format!(
                "{}: INSERT INTO {} lists no columns",
                file.path,
                token(at + 1).to_lowercase()
            ));
        }
    }
    offenders
}

fn link_offenders(file: &File, exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
    if file.extension() != "md" {
        return vec![];
    }
    let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let mut offenders = Vec::new();
    for target in link_targets(&file.text) {
        let path = target.split('#').next().unwrap_or("");
        if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
            continue;
        }
        match inside_repository(folder, path) {
            Some(resolved) if exists(&resolved) => {}
            Some(_) => offenders.push(format!("{}: {target} does not exist", file.path)),
            None => offenders.push(format!(
                "{}: {target} leads out of the repository",
                file.path
            )),
        }
    }
    offenders
}

/// Targets of `[text](target)` and `[name]: target`, outside of code.
fn link_targets(markdown: &str) -> Vec<String> {
    let mut targets = Vec::new();
    let mut is_code = false;
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
        targets.extend(
            prose
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next())
                .map(str::to_owned),
        );
        if prose.starts_with('[') && !prose.starts_with("[^") {
            targets.extend(prose.split_once("]: ").map(|(_, target)| target.to_owned()));
        }
    }
    let without_title = |target: String| {
        Some(
            target
                .split_whitespace()
                .next()?
                .trim_matches(['<', '>'])
                .to_owned(),
        )
    };
    targets.into_iter().filter_map(without_title).collect()
}

/// The path from the repository's root, or nothing when it leads out of there. A leading `/` is the root.
fn inside_repository(folder: &Path, target: &str) -> Option<PathBuf> {
    let (mut resolved, steps) = match target.strip_prefix('/') {
        Some(from_root) => (PathBuf::new(), from_root),
        None => (folder.to_owned(), target),
    };
    for step in steps.split('/') {
        match step {
            "" | "." => {}
            ".." => resolved.pop().then_some(())?,
            name => resolved.push(name),
        }
    }
    Some(resolved)
}

/// Blocks of code that are not the same, and headings that are not as many or not as deep.
fn translation_offenders(original: &File, translation: &File) -> Vec<String> {
    let (ours, theirs) = (outline(&original.text), outline(&translation.text));
    let different = ours.iter().zip(&theirs).find(|(one, other)| one != other);
    if let Some((one, other)) = different {
        return vec![format!(
            "{} has\n{other}\nwhere {} has\n{one}",
            translation.path, original.path
        )];
    }
    let (more, fewer) = if ours.len() > theirs.len() {
        (original, translation)
    } else {
        (translation, original)
    };
    let is_same = ours.len() == theirs.len();
    if is_same {
        vec![]
    } else {
        vec![format!("{} ends before {}", fewer.path, more.path)]
    }
}

/// The blocks of code of a document, and the marks of its headings between them.
fn outline(markdown: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for (at, piece) in markdown.split("```").enumerate() {
        if at % 2 == 1 {
            parts.push(piece.to_owned());
        } else {
            let marks = piece
                .lines()
                .filter_map(|line| line.split_once(' '))
                .map(|(mark, _)| mark);
            parts.extend(
                marks
                    .filter(|mark| mark.starts_with('#'))
                    .map(str::to_owned),
            );
        }
    }
    parts
}

/// A path that starts there; one that merely has such a folder inside (`docs/…`, `$HOME/…`) is none.
fn machine_path_offenders(file: &File) -> Vec<String> {
    let continues_a_path = |c: char| c.is_alphanumeric() || "._-~}*".contains(c);
    let starts_at = |at: usize| !file.text[..at].ends_with(continues_a_path);
    let hits = MACHINE_PATHS
        .iter()
        .flat_map(|path| file.text.match_indices(path))
        .filter(|(at, _)| starts_at(*at));
    hits.map(|(at, _)| file.line_of(at)).collect()
}

// --- reading the repository ----------------------------------------------------------------------

/// A text file, its path from the repository's root with `/` between the names.
struct File {
    path: String,
    text: String,
}

impl File {
    fn extension(&self) -> &str {
        Path::new(&self.path)
            .extension()
            .and_then(|extension| extension.to_str())
            .unwrap_or("")
    }

    fn is_in_comment(&self, at: usize) -> bool {
        self.text[..at]
            .rsplit('\n')
            .next()
            .is_some_and(|line| line.contains("//"))
    }

    fn line_of(&self, at: usize) -> String {
        let number = self.text[..at].matches('\n').count() + 1;
        format!(
            "{}:{number}: {}",
            self.path,
            self.text.lines().nth(number - 1).unwrap_or("").trim()
        )
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn all_files(rule: impl Fn(&File) -> Vec<String>) -> Vec<String> {
    files_below("", rule)
}

/// What the rule finds in the files below a folder. A folder that cannot be read is an offender itself.
fn files_below(folder: &str, rule: impl Fn(&File) -> Vec<String>) -> Vec<String> {
    let mut paths = Vec::new();
    if let Err(error) = collect_paths(Path::new(folder), &mut paths) {
        return vec![format!("cannot read {folder}: {error}")];
    }
    let check = |path: String| match fs::read_to_string(root().join(&path)) {
        Ok(text) => rule(&File { path, text }),
        Err(error) => vec![format!("cannot read {path}: {error}")],
    };
    paths
        .into_iter()
        .filter(|path| is_checked(path))
        .flat_map(check)
        .collect()
}

fn is_checked(path: &str) -> bool {
    let extension = Path::new(path)
        .extension()
        .and_then(|extension| extension.to_str());
    match extension {
        Some(extension) => ["rs", "sql", "md", "toml", "sh"].contains(&extension),
        None => path == "Makefile" || path.starts_with("scripts/") || path.starts_with(".ci/"),
    }
}

fn collect_paths(folder: &Path, paths: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(root().join(folder))? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        let path = folder.join(&name);
        // Build folders and caches carry the tag, wherever they are.
        let is_skipped = path == Path::new("target")
            || [".git", "generated", "node_modules"]
                .iter()
                .any(|skipped| name == *skipped)
            || entry.path().join("CACHEDIR.TAG").exists();
        if kind.is_dir() && !is_skipped {
            collect_paths(&path, paths)?;
        } else if kind.is_file() {
            paths.extend(path.to_str().map(str::to_owned));
        }
    }
    paths.sort();
    Ok(())
}

/// Only the files with this extension, or all.
fn listing(folder: &Path, extension: Option<&str>) -> io::Result<Listing> {
    let mut paths = Vec::new();
    if root().join(folder).is_dir() {
        collect_paths(folder, &mut paths)?;
    }
    let is_wanted = |path: &&Path| {
        extension.is_none_or(|wanted| path.extension().is_some_and(|is| is == wanted))
    };
    let of_kind = paths.iter().map(Path::new).filter(is_wanted);
    let names = of_kind
        .filter_map(|path| path.strip_prefix(folder).ok()?.to_str().map(str::to_owned))
        .collect();
    Ok(Listing {
        folder: folder.to_owned(),
        names,
    })
}

fn members() -> io::Result<Vec<Member>> {
    let arguments = [
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--offline",
        "--locked",
    ];
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root())
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    Ok(members_in(&metadata))
}

fn members_in(metadata: &Value) -> Vec<Member> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let one_use = |value: &Value| Use {
        name: text(&value["name"]),
        only_in_tests: value["kind"] == "dev",
    };
    let member = |package: &Value| Member {
        name: text(&package["name"]),
        folder: Path::new(&text(&package["manifest_path"]))
            .parent()
            .unwrap_or(Path::new(""))
            .to_owned(),
        uses: list(&package["dependencies"]).iter().map(one_use).collect(),
    };
    list(&metadata["packages"]).iter().map(member).collect()
}

fn expect_none(remedy: &str, offenders: Vec<String>) {
    assert!(
        offenders.is_empty(),
        "{remedy}:\n  {}",
        offenders.join("\n  ")
    );
}

// --- the rules, on planted violations ------------------------------------------------------------

fn file(path: &str, text: &str) -> File {
    File {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

fn package(name: &str, folder: &str, normal: &[&str], dev: &[&str]) -> Value {
    let normal = normal
        .iter()
        .map(|name| serde_json::json!({"name": name, "kind": null}));
    let dev = dev
        .iter()
        .map(|name| serde_json::json!({"name": name, "kind": "dev"}));
    let dependencies: Vec<Value> = normal.chain(dev).collect();
    serde_json::json!({"name": name, "manifest_path": format!("{folder}/Cargo.toml"), "dependencies": dependencies})
}

#[test]
fn a_dependency_against_the_direction_is_found() {
    let packages = [
        package(
            "longhaul-domain",
            "crates/domain",
            &["tokio"],
            &["longhaul-testkit", "sqlx"],
        ),
        package(
            "longhaul-testkit",
            "crates/testkit",
            &["longhaul-domain"],
            &["longhaul-store"],
        ),
        package(
            "longhaul-store",
            "crates/storage",
            &["longhaul-domain", "sqlx"],
            &[],
        ),
        package(
            "longhaul-bench-store",
            "bench/store",
            &["longhaul-store"],
            &[],
        ),
        package("longhaul-stray", "apps/stray", &[], &[]),
    ];
    let offenders = layering_offenders(&members_in(&serde_json::json!({"packages": packages})));
    assert_eq!(offenders.len(), 4, "{offenders:#?}");
    assert_eq!(offenders[0], "longhaul-domain must not depend on tokio");
    assert!(
        offenders[1].starts_with("longhaul-testkit has longhaul-store in its dev-dependencies")
    );
    assert!(offenders[2].starts_with("longhaul-store is in \"crates/storage\""));
    assert!(offenders[3].starts_with("longhaul-stray is not in MAY_USE"));
}

#[test]
fn a_file_is_too_long_from_the_first_line_over_the_limit() {
    assert!(length_offenders(&file("a.rs", &"x\n".repeat(700))).is_empty());
    assert_eq!(
        length_offenders(&file("a.rs", &"x\n".repeat(701))),
        ["a.rs: 701 lines, at most 700"]
    );
    assert_eq!(
        length_offenders(&file("a.sql", &"x\n".repeat(401))),
        ["a.sql: 401 lines, at most 400"]
    );
    assert!(length_offenders(&file("a.md", &"x\n".repeat(9000))).is_empty());
}

#[test]
fn a_file_without_its_twins_is_found_unless_explained() {
    let listing = |database: &str, names: &[&str]| Listing {
        folder: PathBuf::from(database),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let differences = differences_between(&[
        listing("sqlite", &["claim.sql", "submit.sql"]),
        listing("postgres", &["claim.sql", "submit.sql", "listen.sql"]),
        listing("mysql", &["submit.sql"]),
    ]);
    let missing_twin = ("mysql/claim.sql".to_owned(), "is missing");
    let extra = ("postgres/listen.sql".to_owned(), "has no twins");
    assert_eq!(differences, [missing_twin, extra]);

    let explained = [
        ("postgres/listen.sql", "only PostgreSQL can wake a session"),
        ("mysql/old.sql", "was once needed"),
    ];
    assert_eq!(
        unexplained(&differences, &explained),
        [
            "mysql/claim.sql is missing",
            "mysql/old.sql is in DIFFERENCES but differs no more"
        ]
    );
}

#[test]
fn sql_built_with_format_is_found_even_across_lines() {
    let text = "let a = format!(\"SELECT {x}\");\nlet b = format!(\n    \"{} (DELETE)\",\n    y,\n);\n\
                let c = format!(\"cannot {verb}\", verb = (\"x\")); // SELECT\n// format!(\"UPDATE\")\nlet d = format!(\"SELECTED\");\n";
    let offenders = built_sql_offenders(&file("a.rs", text));
    assert_eq!(
        offenders,
        [
            "a.rs:1: let a = format!(\"SELECT {x}\");",
            "a.rs:2: let b = format!("
        ]
    );
}

#[test]
fn columns_that_are_not_named_are_found() {
    let offends = |sql: &str| !unnamed_column_offenders(&file("a.sql", sql)).is_empty();
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

#[test]
fn a_link_to_nowhere_is_found() {
    let exists = |path: &Path| path == Path::new("STYLE.md") || path == Path::new("docs/a.md");
    let text = "[ok](../STYLE.md) [ok](a.md#part \"title\") [ok](#here) [ok](https://example.org/x)\n\
                `[code](gone.md)`\n```\n[code](gone.md)\n```\n[bad](gone.md) and [out](../../x.md)\n\n[ref]: also-gone.md\n";
    assert_eq!(
        link_offenders(&file("docs/b.md", text), &exists),
        [
            "docs/b.md: gone.md does not exist",
            "docs/b.md: ../../x.md leads out of the repository",
            "docs/b.md: also-gone.md does not exist"
        ]
    );
}

#[test]
fn a_translation_that_was_left_behind_is_found() {
    let original = file("a.md", "# A\n\n```sh\nmake\n```\n\n## B\n");
    let with = |text: &str| translation_offenders(&original, &file("b.md", text)).len();
    assert_eq!(with("# 甲\n\n```sh\nmake\n```\n\n- 一\n  二\n\n## 乙\n"), 0);
    assert_eq!(
        with("# 甲\n\n```sh\nmake run\n```\n\n## 乙\n"),
        1,
        "another command"
    );
    assert_eq!(
        with("# 甲\n\n```sh\nmake\n```\n"),
        1,
        "a section is missing"
    );
    assert_eq!(
        with("# 甲\n\n```sh\nmake\n```\n\n## 乙\n\n### 丙\n"),
        1,
        "a section too many"
    );
}

#[test]
fn a_path_of_one_machine_is_found() {
    let [root_home, ..] = MACHINE_PATHS else {
        return;
    };
    let text =
        format!("cd {root_home}x\nuse $HOME{root_home}x, docs{root_home}x and {{}}{root_home}x\n");
    assert_eq!(
        machine_path_offenders(&file("a.sh", &text)),
        [format!("a.sh:1: cd {root_home}x")]
    );
}
