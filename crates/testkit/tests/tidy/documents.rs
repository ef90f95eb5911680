//! Links between documents resolve, and translations follow their originals.

use std::fs;
use std::path::{Path, PathBuf};

use crate::repository::{File, check_all, root};
use crate::{expect_none, file};

/// Documents and their translations.
const TRANSLATIONS: &[(&str, &str)] = &[
    ("README.md", "README.zh-CN.md"),
    ("docs/quickstart.md", "docs/zh-CN/quickstart.md"),
];

#[test]
fn links_between_documents_resolve() {
    let exists = |path: &Path| root().join(path).exists();
    expect_none(
        "mend or remove the link",
        check_all(|file| link_violations(file, &exists)),
    );
}

#[test]
fn translations_have_the_commands_and_sections_of_their_originals() {
    let read = |path: &str| File {
        path: path.to_owned(),
        text: fs::read_to_string(root().join(path)).unwrap(),
    };
    let compare = |(original, translation): &(&str, &str)| {
        translation_violations(&read(original), &read(translation))
    };

    expect_none(
        "translate what has changed",
        TRANSLATIONS.iter().flat_map(compare).collect(),
    );
}

fn link_violations(file: &File, exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
    if file.extension() != "md" {
        return vec![];
    }

    let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let mut violations = Vec::new();
    for target in link_targets(&file.text) {
        let path = target.split('#').next().unwrap_or("");
        if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
            continue;
        }

        match inside_repository(folder, path) {
            Some(resolved) if exists(&resolved) => {}
            Some(_) => violations.push(format!("{}: {target} does not exist", file.path)),
            None => violations.push(format!(
                "{}: {target} leads out of the repository",
                file.path
            )),
        }
    }

    violations
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

/// The path from the repository's root, or nothing when it leads out of the repository. A leading
/// `/` is the root.
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

/// Code blocks that differ, and headings that differ in number or depth.
fn translation_violations(original: &File, translation: &File) -> Vec<String> {
    let ours = outline(&original.text);
    let theirs = outline(&translation.text);
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

/// The code blocks of a document and the marks of the headings between them.
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

#[test]
fn a_link_to_nowhere_is_found() {
    let exists = |path: &Path| path == Path::new("STYLE.md") || path == Path::new("docs/a.md");
    let text = "[ok](../STYLE.md) [ok](a.md#part \"title\") [ok](#here)\n\
                [ok](https://example.org/x)\n`[code](gone.md)`\n```\n[code](gone.md)\n```\n\
                [bad](gone.md) and [out](../../x.md)\n\n[ref]: also-gone.md\n";

    assert_eq!(
        link_violations(&file("docs/b.md", text), &exists),
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
    let with = |text: &str| translation_violations(&original, &file("b.md", text)).len();
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
