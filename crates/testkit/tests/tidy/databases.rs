//! The folders of the three databases have the same files.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::expect_none;
use crate::repository::{collect_paths, root};

const DATABASES: [&str; 3] = ["sqlite", "postgres", "mysql"];

/// Files that only one database has, or only one lacks, each with the reason.
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
        "crates/store/src/postgres/notifier.rs",
        "only PostgreSQL has NOTIFY",
    ),
    (
        "crates/store/src/postgres/sql/notify_hint.fragment",
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
        "crates/store/src/sqlite/file.rs",
        "servers look after their files themselves",
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
        "crates/store/src/mysql/sql/append_task_counts.sql",
        "JSON_TABLE is slow for a few rows",
    ),
];

/// The files below one database's folder, with paths from there.
struct Listing {
    folder: PathBuf,
    names: BTreeSet<String>,
}

#[test]
fn the_three_databases_have_the_same_files() {
    let mut violations = Vec::new();
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
        violations.extend(missing.map(|folder| format!("{} is missing", folder.display())));
        differences.extend(differences_between(
            &folders.map(|folder| listing(&folder, extension).unwrap()),
        ));
    }

    violations.extend(unexplained(&differences, DIFFERENCES));
    expect_none(
        "add the twin, or a row with the reason to DIFFERENCES",
        violations,
    );
}

/// The files that only one folder has or lacks, each with what is wrong about it.
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

/// The files with this extension, or all files.
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
