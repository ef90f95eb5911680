//! Which crate may depend on which.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::expect_none;
use crate::repository::root;

/// The crates of the workspace that a crate may use. The facade and the benchmarks may use all.
const MAY_USE: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("engine", &["domain"]),
    ("store", &["domain"]),
    ("transport", &["domain"]),
    ("api", &["domain"]),
    ("sdk", &["domain", "engine"]),
    ("node", &["domain", "engine", "sdk"]),
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
            "sdk",
            "node",
            "server",
            "testkit",
        ],
    ),
    ("novel", &["longhaul"]),
    ("cli", &["longhaul", "novel", "api"]),
];

/// The tests of every crate may use these in addition.
const TESTS_MAY_USE: &[&str] = &["domain", "testkit"];

/// Tests that run the whole product in their own process.
const WHOLE_PRODUCT_TESTS: &[(&str, &[&str])] = &[
    ("server", &["longhaul", "cli"]),
    ("node", &["longhaul", "transport"]),
];

/// The domain only decides: no runtime, no database, no network.
const BANNED_IN_DOMAIN: &[&str] = &["tokio", "sqlx", "axum"];

struct Member {
    name: String,
    folder: PathBuf,
    uses: Vec<Use>,
}

struct Use {
    name: String,
    only_in_tests: bool,
}

#[test]
fn crates_depend_in_one_direction() {
    expect_none(
        "see MAY_USE, the table of allowed dependencies",
        layering_violations(&members().unwrap()),
    );
}

fn tests_may_use(user: &str, used: &str) -> bool {
    let row = WHOLE_PRODUCT_TESTS.iter().find(|(row, _)| *row == user);
    TESTS_MAY_USE.contains(&used) || row.is_some_and(|(_, allowed)| allowed.contains(&used))
}

fn layering_violations(members: &[Member]) -> Vec<String> {
    let is_bench = |member: &&Member| member.name.starts_with("longhaul-bench-");
    let checked = members.iter().filter(|member| !is_bench(member));
    checked
        .flat_map(|member| member_violations(member, members))
        .collect()
}

fn member_violations(member: &Member, members: &[Member]) -> Vec<String> {
    let name = &member.name;
    let short = short_name(name);
    let Some((_, allowed)) = MAY_USE.iter().find(|(row, _)| *row == short) else {
        return vec![format!(
            "{name} is not in MAY_USE: add a row that says which crates it may use"
        )];
    };

    let mut violations = Vec::new();
    if !member.folder.ends_with(short) {
        violations.push(format!(
            "{name} is in {:?}: a package is called longhaul-<folder>",
            member.folder
        ));
    }

    for used in &member.uses {
        let other = short_name(&used.name);
        let is_member = members.iter().any(|member| member.name == used.name);
        let is_allowed =
            allowed.contains(&other) || used.only_in_tests && tests_may_use(short, other);
        if is_member && !is_allowed {
            let prefix = if used.only_in_tests { "dev-" } else { "" };
            violations.push(format!(
                "{name} has {} in its {prefix}dependencies, but may use only {allowed:?}",
                used.name
            ));
        }

        let is_banned = BANNED_IN_DOMAIN.contains(&used.name.as_str());
        if short == "domain" && is_banned && !used.only_in_tests {
            violations.push(format!("{name} must not depend on {}", used.name));
        }
    }

    violations
}

fn short_name(package: &str) -> &str {
    package.strip_prefix("longhaul-").unwrap_or(package)
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

fn package(name: &str, folder: &str, normal: &[&str], dev: &[&str]) -> Value {
    let normal = normal
        .iter()
        .map(|name| serde_json::json!({"name": name, "kind": null}));
    let dev = dev
        .iter()
        .map(|name| serde_json::json!({"name": name, "kind": "dev"}));
    let dependencies: Vec<Value> = normal.chain(dev).collect();

    serde_json::json!({
        "name": name,
        "manifest_path": format!("{folder}/Cargo.toml"),
        "dependencies": dependencies,
    })
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

    let violations = layering_violations(&members_in(&serde_json::json!({"packages": packages})));
    assert_eq!(violations.len(), 4, "{violations:#?}");
    assert_eq!(violations[0], "longhaul-domain must not depend on tokio");
    assert!(
        violations[1].starts_with("longhaul-testkit has longhaul-store in its dev-dependencies")
    );
    assert!(violations[2].starts_with("longhaul-store is in \"crates/storage\""));
    assert!(violations[3].starts_with("longhaul-stray is not in MAY_USE"));
}
