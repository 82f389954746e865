//! Tests of identities, in repositories created for each test.

use mmscale_identity::Sources;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const PATHS: [&str; 4] = ["src", "extra/*/src", "studies/*/*.rs", "Cargo.toml"];

struct Repository {
    folder: TempDir,
}

fn git(folder: &Path, words: &[&str]) {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]);
    let output = git.args(words).current_dir(folder).output().expect("git was there just now");
    assert!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn identity(folder: &Path) -> String {
    Sources::new(folder, &PATHS).identity()
}

impl Repository {
    /// A repository with one commit that contains a package. `None` without git.
    fn new() -> Option<Self> {
        if Command::new("git").arg("--version").output().is_err() {
            println!("test skipped: there is no git");
            return None;
        }
        let repository = Self { folder: tempfile::tempdir().unwrap() };
        for (path, text) in [("src/a.rs", "one"), ("src/b.rs", "two"), ("Cargo.toml", "[package]")]
        {
            repository.write(path, text);
        }
        repository.write("README.md", "words");
        repository.write(".gitignore", "target\n");
        repository.git(&["init", "--quiet"]);
        repository.git(&["add", "."]);
        repository.git(&["commit", "--quiet", "-m", "first"]);
        Some(repository)
    }
    fn path(&self) -> &Path {
        self.folder.path()
    }
    fn git(&self, words: &[&str]) {
        git(self.path(), words);
    }
    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    fn identity(&self) -> String {
        identity(self.path())
    }
}

/// Without the hash, the result of changed sources would name a commit that did not produce it.
#[test]
fn sources_that_differ_from_the_commit_say_so_by_what_is_in_them() {
    let Some(repository) = Repository::new() else { return };
    let clean = repository.identity();
    assert_eq!(clean.len(), 12, "{clean}");
    repository.write("src/a.rs", "one!");
    let changed = repository.identity();
    assert!(changed.starts_with(&format!("{clean}+")) && changed.len() == 25, "{changed}");
    repository.git(&["add", "."]);
    assert_eq!(repository.identity(), changed, "staging changes no source");
    repository.write("src/a.rs", "one?");
    assert_ne!(repository.identity(), changed);
    repository.write("src/a.rs", "one!");
    assert_eq!(repository.identity(), changed, "the same difference has the same hash");
    repository.git(&["commit", "--quiet", "-m", "second"]);
    let second = repository.identity();
    assert!(!second.contains('+') && second != clean, "{second}");
}

#[test]
fn new_and_removed_files_are_differences_and_others_are_none() {
    let Some(repository) = Repository::new() else { return };
    let clean = repository.identity();
    repository.write("README.md", "other words");
    repository.write("notes.txt", "new");
    repository.write("src/target/built", "ignored");
    assert_eq!(repository.identity(), clean, "none of these is a source");
    repository.write("src/new.rs", "three");
    let new = repository.identity();
    assert_ne!(new, clean);
    repository.write("studies/one/one.rs", "four");
    repository.write("studies/one/README.md", "words");
    assert_ne!(repository.identity(), new);
    std::fs::remove_dir_all(repository.path().join("studies")).unwrap();
    repository.git(&["add", "src"]);
    assert_eq!(repository.identity(), new, "it is as new when it is staged");
    repository.git(&["reset", "--quiet", "--hard"]);
    assert_eq!(repository.identity(), clean);
    std::fs::remove_file(repository.path().join("src/b.rs")).unwrap();
    assert!(repository.identity().starts_with(&format!("{clean}+")));
}

#[test]
fn a_repository_around_foreign_sources_is_not_theirs() {
    let Some(repository) = Repository::new() else { return };
    repository.write("vendor/src/a.rs", "from an archive");
    repository.write("vendor/Cargo.toml", "[package]");
    assert_eq!(identity(&repository.path().join("vendor")), "unknown");
    let alone = tempfile::tempdir().unwrap();
    std::fs::write(alone.path().join("Cargo.toml"), "[package]").unwrap();
    assert_eq!(identity(alone.path()), "unknown");
}

#[test]
fn a_second_working_tree_has_changes_of_its_own() {
    let Some(repository) = Repository::new() else { return };
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    repository.git(&["worktree", "add", "--quiet", "--detach", tree.to_str().unwrap()]);
    repository.write("src/a.rs", "one!");
    assert!(repository.identity().contains('+'));
    assert_eq!(Some(identity(&tree).as_str()), repository.identity().split('+').next());
    std::fs::write(tree.join("src/a.rs"), "one!").unwrap();
    assert_eq!(identity(&tree), repository.identity());
}

/// Cargo watches these files. A missing file causes a rebuild each time; a file that is not listed
/// leaves an old identity in a new program.
#[test]
fn what_is_watched_is_there_and_covers_sources_and_commits() {
    let Some(repository) = Repository::new() else { return };
    repository.write("extra/one/src/c.rs", "");
    repository.write("studies/one/one.rs", "");
    repository.write("studies/one/README.md", "");
    let watched = || Sources::new(repository.path(), &PATHS).watched();
    let has = |name: &str| watched().contains(&repository.path().join(name));
    for name in ["src", "extra/one/src", "studies/one/one.rs", "Cargo.toml", ".git/logs/HEAD"] {
        assert!(has(name), "{name} is not in {:?}", watched());
    }
    assert!(!has("studies/one/README.md"), "it does not end so");
    assert!(!has(".git/index"), "git status writes it");
    std::fs::remove_file(repository.path().join(".git/logs/HEAD")).unwrap();
    let there: Vec<PathBuf> = watched().into_iter().filter(|path| !path.exists()).collect();
    assert_eq!(there, Vec::<PathBuf>::new());
    assert!(has(".git/HEAD"));
    assert!(watched().iter().any(|path| path.starts_with(repository.path().join(".git/refs"))));
}
