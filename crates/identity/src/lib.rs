//! The identity of the sources that a program is built from, for its build script.
//!
//! A result must identify the sources of the program that produced it, even if they were not
//! committed. [`emit`] passes the commit, and a hash over the files that differ from it, to the
//! program in an environment variable of its compiler:
//!
//! ```no_run
//! // build.rs
//! mmscale_identity::emit("MY_SOURCES", &["src", "Cargo.toml"]);
//! ```
//!
//! The program reads it with `env!("MY_SOURCES")`. The value is `9ccc9e473612`, or
//! `9ccc9e473612+3fa2b1c0d9e8` if files differ from the commit, or `unknown` outside a repository.
//!
//! The caller lists the files and folders that count. In a path, `*` matches the name of one file
//! or folder, and `*.rs` matches names that end in `.rs`. Changes elsewhere, such as in a
//! documentation page, do not change the identity. The sources must be tracked in the repository: a
//! repository that only contains their folder does not count. The `git` command is required.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Number of digits of a commit and of a hash.
const DIGITS: usize = 12;

/// The sources of one program.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    folder: &'a Path,
    paths: &'a [&'a str],
}

/// Sets the environment variable `name` of the compiler to the identity of the sources, and makes
/// Cargo rerun the build script when the identity may change. Paths are relative to the folder of
/// the package that is being built.
pub fn emit(name: &str, paths: &[&str]) {
    // Cargo starts build scripts in the package's folder.
    let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or(".".into()));
    let sources = Sources::new(&folder, paths);
    println!("cargo::rerun-if-changed=build.rs");
    for path in sources.watched() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rustc-env={name}={}", sources.identity());
}

impl<'a> Sources<'a> {
    /// Creates the list of sources at `paths`, which are relative to `folder`.
    pub fn new(folder: &'a Path, paths: &'a [&'a str]) -> Self {
        Self { folder, paths }
    }

    /// Returns the commit, with `+` and a hash if files differ from it, or `unknown` without a
    /// repository.
    pub fn identity(&self) -> String {
        self.known().unwrap_or_else(|| "unknown".to_owned())
    }

    fn known(&self) -> Option<String> {
        // An unpacked archive inside a foreign repository has no identity.
        self.git(&["ls-files", "--error-unmatch", "Cargo.toml"], "")?;
        let commit = self.git(&["rev-parse", &format!("--short={DIGITS}"), "HEAD"], "")?;
        let commit = commit.trim();
        let changed = self.changed()?;
        if changed.is_empty() {
            return Some(commit.to_owned());
        }
        let mut all = String::new();
        for (path, content) in changed.iter().zip(self.contents(&changed)?) {
            all += &format!("{content} {path}\n");
        }
        let hash = self.git(&["hash-object", "--stdin"], &all)?;
        Some(format!("{commit}+{}", hash.trim().get(..DIGITS)?))
    }

    /// Returns the files that differ from the commit: changed, removed and new ones, staged or not,
    /// but not ignored ones. Paths are relative to the top of the repository.
    fn changed(&self) -> Option<BTreeSet<String>> {
        // Git matches a pattern against whole names, so it needs one for the entry and one for its
        // content.
        let below = self.paths.iter().flat_map(|path| match path.contains('*') {
            true => vec![format!(":(glob){path}"), format!(":(glob){path}/**")],
            false => vec![(*path).to_owned()],
        });
        let below: Vec<String> = below.collect();
        let with_paths = |command: &[&str]| {
            let paths = below.iter().map(String::as_str);
            let words: Vec<&str> = command.iter().copied().chain(["--"]).chain(paths).collect();
            self.git(&words, "")
        };
        let diff = ["diff", "--name-only", "--no-renames", "--no-relative", "--no-ext-diff"];
        let differ = with_paths(&[&diff[..], &["-z", "HEAD"]].concat())?;
        let new = with_paths(&["ls-files", "--others", "--exclude-standard", "--full-name", "-z"])?;
        let names = differ.split('\0').chain(new.split('\0')).filter(|name| !name.is_empty());
        Some(names.map(str::to_owned).collect())
    }

    /// Returns the content hash of each file, or a mark if the file is missing.
    fn contents(&self, paths: &BTreeSet<String>) -> Option<Vec<String>> {
        let top = self.git(&["rev-parse", "--show-toplevel"], "")?;
        let top = Path::new(top.trim_end_matches('\n'));
        let there = |path: &&String| top.join(path).is_file();
        let list: String =
            paths.iter().filter(there).map(|p| format!("{}\n", top.join(p).display())).collect();
        let hashes = self.git(&["hash-object", "--no-filters", "--stdin-paths"], &list)?;
        let mut hashes = hashes.lines();
        let content = |path| if there(&path) { hashes.next() } else { Some("gone") };
        paths.iter().map(content).map(|content| content.map(str::to_owned)).collect()
    }

    /// Returns the files on which the identity depends: the sources, and the files in which git
    /// records a move of HEAD. The index is not included: staging does not change the identity, and
    /// `git status` writes the index. Files that do not exist are left out, because Cargo treats a
    /// missing file as changed.
    pub fn watched(&self) -> Vec<PathBuf> {
        let mut watched = self.folders();
        let in_git = |name: &str| {
            let path = self.git(&["rev-parse", "--git-path", name], "")?;
            let path = self.folder.join(path.trim_end_matches('\n'));
            path.exists().then_some(path)
        };
        // The log has a line for each commit, checkout and reset of this working tree.
        match in_git("logs/HEAD") {
            Some(log) => watched.push(log),
            None => {
                let branch = self.git(&["symbolic-ref", "--quiet", "HEAD"], "");
                let files = ["HEAD", "packed-refs", branch.as_deref().unwrap_or("HEAD").trim()];
                watched.extend(files.into_iter().filter_map(in_git));
            }
        }
        watched
    }

    /// Returns the files and folders that the paths name.
    fn folders(&self) -> Vec<PathBuf> {
        self.paths.iter().flat_map(|path| expanded(self.folder, path)).collect()
    }

    /// Returns the output of a git command. `None`: the command failed.
    fn git(&self, words: &[&str], input: &str) -> Option<String> {
        let mut child = Command::new("git")
            .args(words)
            .current_dir(self.folder)
            // Never write the index, which other processes may have locked.
            .env("GIT_OPTIONAL_LOCKS", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut stdin = child.stdin.take()?;
        let input = input.to_owned();
        // Write in a thread while reading: both pipes may fill up.
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).is_ok());
        let output = child.wait_with_output().ok()?;
        let written = writer.join().ok()?;
        (output.status.success() && written).then(|| String::from_utf8(output.stdout).ok())?
    }
}

/// Returns the existing paths that match a pattern, in which a component may be `*` or begin with
/// `*`.
fn expanded(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for part in pattern.split('/') {
        let of = |base: PathBuf| match part.strip_prefix('*') {
            Some(end) => {
                let entries = std::fs::read_dir(&base).into_iter().flatten().flatten();
                let meant = entries.filter(|e| e.file_name().to_string_lossy().ends_with(end));
                let mut all: Vec<_> = meant.map(|entry| entry.path()).collect();
                all.sort();
                all
            }
            None => vec![base.join(part)],
        };
        found = found.into_iter().flat_map(of).filter(|path| path.exists()).collect();
    }
    found
}
