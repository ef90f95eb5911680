//! Reading the repository.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The extensions of the files that the rules read.
const EXTENSIONS: &[&str] = &[
    "css", "fragment", "html", "js", "json", "lua", "md", "py", "rs", "service", "sh", "sql",
    "toml", "ts", "tsx", "txt", "yaml", "yml",
];

/// Folders that no rule reads, wherever they are.
const SKIPPED_FOLDERS: &[&str] = &[".git", "generated", "node_modules", "dist"];

/// A text file. Its path starts at the repository's root and has `/` between the names.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn extension(&self) -> &str {
        extension_of(&self.path).unwrap_or("")
    }

    pub(crate) fn is_in_comment(&self, at: usize) -> bool {
        let line = self.text[..at].rsplit('\n').next();
        line.is_some_and(|line| line.contains("//"))
    }

    /// The path, number and text of the line at a byte of the file.
    pub(crate) fn line_of(&self, at: usize) -> String {
        let number = self.text[..at].matches('\n').count() + 1;
        let line = self.text.lines().nth(number - 1).unwrap_or("").trim();
        format!("{}:{number}: {line}", self.path)
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What the rule finds in all files.
pub(crate) fn check_all(rule: impl Fn(&File) -> Vec<String>) -> Vec<String> {
    check_below("", rule)
}

/// What the rule finds in the files below a folder. An unreadable folder or file is a violation.
pub(crate) fn check_below(folder: &str, rule: impl Fn(&File) -> Vec<String>) -> Vec<String> {
    match files_below(folder) {
        Ok(files) => files.iter().flat_map(rule).collect(),
        Err(error) => vec![format!("cannot read {folder}: {error}")],
    }
}

pub(crate) fn files_below(folder: &str) -> io::Result<Vec<File>> {
    let mut paths = Vec::new();
    collect_paths(Path::new(folder), &mut paths)?;

    let mut files = Vec::new();
    for path in paths.into_iter().filter(|path| is_checked(path)) {
        let text = fs::read_to_string(root().join(&path))?;
        files.push(File { path, text });
    }

    Ok(files)
}

fn is_checked(path: &str) -> bool {
    match extension_of(path) {
        Some(extension) => EXTENSIONS.contains(&extension),
        None => ["Makefile", "scripts/", "deploy/", ".ci/"]
            .iter()
            .any(|start| path.starts_with(start)),
    }
}

fn extension_of(path: &str) -> Option<&str> {
    Path::new(path).extension()?.to_str()
}

/// The paths of all files below a folder, sorted.
pub(crate) fn collect_paths(folder: &Path, paths: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(root().join(folder))? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = entry.file_type()?;
        let path = folder.join(&name);

        // Build folders and caches carry the tag, wherever they are.
        let is_skipped = path == Path::new("target")
            || SKIPPED_FOLDERS.iter().any(|skipped| name == *skipped)
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
