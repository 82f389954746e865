//! Folders that another user can write to.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use mmscale_files::{Existing, Folder, FolderError, Limit};

const LIMIT: Limit = Limit::new("a test", 1 << 10);

fn names(folder: &Path) -> Vec<String> {
    let entry = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(entry).collect();
    names.sort();
    names
}

#[test]
fn missing_folders_are_made_and_files_replaced_if_that_was_asked_for() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a/b");
    let folder = Folder::open(&path, Existing::Replace).unwrap();
    folder.write("run.json", "old").unwrap();
    folder.free("run.json").unwrap();
    let file = folder.write("run.json", "new").unwrap();
    assert_eq!(fs::read_to_string(file.path).unwrap(), "new");
    assert_eq!(names(&path), ["run.json"]);
    fs::create_dir(path.join("other.json")).unwrap();
    let why = folder.free("other.json").unwrap_err();
    assert!(matches!(why, FolderError::IsADirectory { .. }), "{why}");
}

#[test]
fn a_file_may_be_read_by_whom_the_umask_lets() {
    let root = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let usual = root.path().join("usual");
    fs::write(&usual, "").unwrap();
    let folder = Folder::open(root.path(), Existing::Keep).unwrap();
    let written = folder.write("run.json", "x").unwrap();
    assert_eq!(mode(&written.path), mode(&usual));
}

#[test]
fn a_file_of_another_run_is_seen_before_and_kept_after() {
    let root = tempfile::tempdir().unwrap();
    let folder = Folder::open(root.path(), Existing::Keep).unwrap();
    folder.free("run.json").unwrap();
    // Another run publishes while this one computes.
    folder.write("run.json", "theirs").unwrap();
    let why = folder.free("run.json").unwrap_err().to_string();
    assert!(why.contains("run.json") && why.contains("--replace"), "{why}");
    for (nth, text) in ["ours", "later"].into_iter().enumerate() {
        let written = folder.write("run.json", text).unwrap();
        assert_eq!(written.path, root.path().join(format!("run.{}.json", nth + 2)));
        assert_eq!(written.instead_of, Some(root.path().join("run.json")));
    }
    let text = |name: &str| fs::read_to_string(root.path().join(name)).unwrap();
    assert_eq!(["run.json", "run.2.json", "run.3.json"].map(text), ["theirs", "ours", "later"]);
    assert_eq!(names(root.path()).len(), 3);
}

/// Links and pipes that another user plants at the name: their targets must not be written.
#[test]
fn links_and_pipes_at_the_name_lead_nowhere() {
    for existing in [Existing::Keep, Existing::Replace] {
        let root = tempfile::tempdir().unwrap();
        let (secret, results) = (root.path().join("secret"), root.path().join("results"));
        fs::write(&secret, "precious").unwrap();
        let folder = Folder::open(&results, existing).unwrap();
        symlink(&secret, results.join("link.json")).unwrap();
        symlink(root.path().join("nothing"), results.join("dangling.json")).unwrap();
        fs::hard_link(&secret, results.join("hard.json")).unwrap();
        let mut fifo = std::process::Command::new("mkfifo");
        assert!(fifo.arg(results.join("fifo.json")).status().unwrap().success());
        for name in ["link.json", "dangling.json", "hard.json", "fifo.json"] {
            assert_eq!(folder.free(name).is_ok(), existing == Existing::Replace, "{name}");
            let written = folder.write(name, "result").unwrap();
            let data = fs::symlink_metadata(&written.path).unwrap();
            assert!(data.is_file() && data.nlink() == 1, "{name}");
            assert_eq!(fs::read_to_string(written.path).unwrap(), "result");
            assert_eq!(written.instead_of.is_some(), existing == Existing::Keep, "{name}");
        }
        assert_eq!(fs::read_to_string(&secret).unwrap(), "precious");
        assert!(!root.path().join("nothing").exists());
    }
}

#[test]
fn a_file_in_the_way_is_a_wrong_call() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "x").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = Folder::open(&path, Existing::Keep).unwrap_err();
        assert!(matches!(error, FolderError::NotADirectory { .. }), "{error}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "x");
}

/// Everything that another user can place under a name that is known in advance.
fn plant(root: &Path, at: &Path, secret: &Path) -> Vec<(&'static str, &'static str)> {
    let fifo = |name: &str| {
        let mut fifo = std::process::Command::new("mkfifo");
        assert!(fifo.arg(at.join(name)).status().unwrap().success());
    };
    symlink(secret, at.join("link")).unwrap();
    symlink(root.join("nothing"), at.join("dangling")).unwrap();
    symlink("/dev/zero", at.join("zero")).unwrap();
    fifo("fifo");
    fs::create_dir(at.join("folder")).unwrap();
    vec![
        ("link", "a link"),
        ("dangling", "a link"),
        ("zero", "a link"),
        ("fifo", "a pipe"),
        ("folder", "a directory"),
    ]
}

#[test]
fn planted_files_are_neither_read_nor_locked() {
    let root = tempfile::tempdir().unwrap();
    let secret = root.path().join("secret");
    fs::write(&secret, "precious").unwrap();
    let results = root.path().join("results");
    let folder = Folder::open(&results, Existing::Replace).unwrap();
    for (name, kind) in plant(root.path(), &results, &secret) {
        let why = folder.read(name, LIMIT).unwrap_err().to_string();
        assert_eq!(why, format!("it is {kind}, not a regular file"), "{name}");
        let why = folder.lock(name).unwrap_err().to_string();
        assert!(why.contains(kind) && why.ends_with("remove it"), "{why}");
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "precious");
    assert!(!root.path().join("nothing").exists());
}

#[test]
fn a_folder_in_a_folder_is_no_link() {
    let root = tempfile::tempdir().unwrap();
    let elsewhere = root.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let folder = Folder::open(&root.path().join("results"), Existing::Replace).unwrap();
    symlink(&elsewhere, root.path().join("results/runs")).unwrap();
    let why = folder.inside("runs").unwrap_err().to_string();
    assert!(why.contains("results/runs") && why.contains("it is a link"), "{why}");
    assert_eq!(names(&elsewhere), [""; 0]);
    let runs = folder.inside("other").unwrap();
    runs.write("x", "y").unwrap();
    assert_eq!(fs::read_to_string(root.path().join("results/other/x")).unwrap(), "y");
}

#[test]
fn a_file_of_another_user_is_not_believed_where_this_one_writes() {
    let root = tempfile::tempdir().unwrap();
    let folder = Folder::open(root.path(), Existing::Replace).unwrap();
    for name in ["x", "x.lock"] {
        fs::write(root.path().join(name), "theirs").unwrap();
        if std::os::unix::fs::chown(root.path().join(name), Some(65_534), None).is_err() {
            eprintln!("live-test skipped: changing the owner of a file needs root");
            return;
        }
    }
    let why = folder.read("x", LIMIT).unwrap_err().to_string();
    assert_eq!(why, "it belongs to user 65534, and this process writes there as user 0");
    assert!(folder.lock("x.lock").unwrap_err().to_string().contains("belongs to user 65534"));
    let reader = Folder::only_read(root.path()).unwrap();
    assert_eq!(reader.read("x", LIMIT).unwrap().as_deref(), Some("theirs"));
}

#[test]
fn a_lock_is_held_by_one_and_leaves_no_file() {
    let root = tempfile::tempdir().unwrap();
    let folder = Folder::open(root.path(), Existing::Replace).unwrap();
    let held = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let _lock = folder.lock("lock").unwrap();
                    // Relaxed: the lock orders the holders.
                    assert!(!held.swap(true, std::sync::atomic::Ordering::Relaxed));
                    std::thread::yield_now();
                    held.store(false, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(names(root.path()), [""; 0]);
}
