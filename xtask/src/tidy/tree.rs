//! The files that the rules check.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Folders of crates.
const CRATES: [&str; 2] = ["crates/", "testing/"];

/// A file with its text. The text of binary files is empty.
pub struct Source {
    /// The path relative to the root, with `/` between folders.
    pub path: String,
    /// The content of the file.
    pub text: String,
    syntax: OnceCell<Result<syn::File, (usize, String)>>,
}

impl Source {
    fn new(path: String, text: String) -> Self {
        Self { path, text, syntax: OnceCell::new() }
    }
    /// Returns whether this is a Rust file.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
    /// Returns whether this is a page of documentation.
    pub fn is_page(&self) -> bool {
        self.path.ends_with(".md")
    }
    /// Returns the crate (`mm` for `crates/mm/src/lib.rs`) of the file, if it is in one; `xtask`
    /// for xtask.
    pub fn krate(&self) -> Option<&str> {
        match self.below_crates() {
            Some((krate, _)) => Some(krate),
            None => ["xtask", "studies"].into_iter().find(|krate| self.is_below(krate)),
        }
    }
    fn is_below(&self, folder: &str) -> bool {
        self.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    }
    /// Returns the crate and the path in it.
    fn below_crates(&self) -> Option<(&str, &str)> {
        let rest = CRATES.iter().find_map(|folder| self.path.strip_prefix(folder))?;
        rest.split_once('/')
    }
    /// Returns the part of the crate that contains the file: `src`, `tests`, `benches`, ...
    pub fn part(&self) -> &str {
        // In the studies' crate, each folder except for the tests is a module.
        if self.is_below("studies") && !self.is_below("studies/tests") {
            return if self.is_rust() { "src" } else { "" };
        }
        let inside = self.below_crates();
        let rest = inside.map_or_else(
            || self.path.split_once('/').map(|(_, rest)| rest),
            |(_, rest)| Some(rest),
        );
        rest.and_then(|rest| rest.split_once('/')).map_or("", |(part, _)| part)
    }
    /// Returns the file as Rust syntax; `None` if it is another file or cannot be parsed.
    pub fn syntax(&self) -> Option<&syn::File> {
        self.is_rust().then(|| self.parsed().as_ref().ok()).flatten()
    }
    /// Returns line and reason if the file cannot be parsed as Rust.
    pub fn parse_error(&self) -> Option<(usize, String)> {
        self.parsed().as_ref().err().cloned()
    }
    fn parsed(&self) -> &Result<syn::File, (usize, String)> {
        self.syntax.get_or_init(|| {
            syn::parse_file(&self.text).map_err(|why| (why.span().start().line, why.to_string()))
        })
    }
}

/// All files of the workspace, except for build products and version control.
pub struct Tree {
    files: BTreeMap<String, Source>,
}

impl Tree {
    /// Reads the workspace at `root`.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self { files: BTreeMap::new() };
        tree.read_folder(root, "")?;
        Ok(tree)
    }
    /// Creates a tree from paths and texts, for tests of rules.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let source = |&(path, text): &(&str, &str)| {
            (path.to_owned(), Source::new(path.to_owned(), text.to_owned()))
        };
        Self { files: files.iter().map(source).collect() }
    }
    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if !is_left_out(&name, prefix) {
                    self.read_folder(&entry.path(), &format!("{path}/"))?;
                }
            } else if kind.is_file() && name != ".git" {
                let text = String::from_utf8(fs::read(entry.path())?).unwrap_or_default();
                self.files.insert(path.clone(), Source::new(path, text));
            }
        }
        Ok(())
    }
    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }
    /// Returns whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
    /// Returns whether `path` is a file, or a folder that contains a file.
    pub fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        path.is_empty() || self.files.contains_key(path) || {
            let folder = format!("{path}/");
            let mut from = self.files.range(folder.clone()..);
            from.next().is_some_and(|(first, _)| first.starts_with(&folder))
        }
    }
    /// Returns the file at `path`.
    pub fn source(&self, path: &str) -> Option<&Source> {
        self.files.get(path)
    }
    /// Returns all files, sorted by path.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.files.values()
    }
    /// Returns all Rust files, sorted by path.
    pub fn rust(&self) -> impl Iterator<Item = &Source> {
        self.sources().filter(|source| source.is_rust())
    }
}

/// Returns whether a folder contains no sources. `.ci` and `.cargo` do.
fn is_left_out(name: &str, prefix: &str) -> bool {
    let hidden = name.starts_with('.') && !(prefix.is_empty() && matches!(name, ".ci" | ".cargo"));
    hidden || name == "target"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_exist_through_their_files() {
        let tree = Tree::of(&[("a/b/c.rs", ""), ("a-b", "")]);
        assert!(tree.has("a") && tree.has("a/b/") && tree.has("a/b/c.rs") && tree.has("a-b"));
        assert!(!tree.has("a/b/c") && !tree.has("b"));
    }

    #[test]
    fn a_source_knows_its_crate_and_part() {
        let source = |path: &str| Source::new(path.into(), String::new());
        assert_eq!(source("crates/mm/src/a/b.rs").krate(), Some("mm"));
        assert_eq!(source("crates/mm/src/a/b.rs").part(), "src");
        assert_eq!(source("testing/peers/benches/vma.rs").krate(), Some("peers"));
        assert_eq!(source("testing/peers/benches/vma.rs").part(), "benches");
        assert_eq!(source("xtask/tests/tidy.rs").part(), "tests");
        assert_eq!(source("README.md").krate(), None);
    }
}
