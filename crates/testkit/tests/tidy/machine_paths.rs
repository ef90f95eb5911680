//! No file names a path that exists on one machine only.

use crate::repository::{File, check_all};
use crate::{expect_none, file};

/// Folders of a developer's machine. Written in two pieces so that this file does not violate the
/// rule.
const MACHINE_PATHS: &[&str] = &[
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/wo", "rk/"),
];

#[test]
fn no_file_names_a_path_of_one_machine() {
    expect_none(
        "write the path relative to the repository",
        check_all(machine_path_violations),
    );
}

/// A path that starts with such a folder. A folder of that name inside a path (`docs/…`,
/// `$HOME/…`) is allowed.
fn machine_path_violations(file: &File) -> Vec<String> {
    let continues_a_path = |c: char| c.is_alphanumeric() || "._-~}*".contains(c);
    let starts_at = |at: usize| !file.text[..at].ends_with(continues_a_path);
    let hits = MACHINE_PATHS
        .iter()
        .flat_map(|path| file.text.match_indices(path))
        .filter(|(at, _)| starts_at(*at));
    hits.map(|(at, _)| file.line_of(at)).collect()
}

#[test]
fn a_path_of_one_machine_is_found() {
    let [root_home, ..] = MACHINE_PATHS else {
        return;
    };
    let text =
        format!("cd {root_home}x\nuse $HOME{root_home}x, docs{root_home}x and {{}}{root_home}x\n");

    assert_eq!(
        machine_path_violations(&file("a.sh", &text)),
        [format!("a.sh:1: cd {root_home}x")]
    );
}
