//! Folders for temporary files, of which a later run can tell whether they are in use.

use crate::proof::{Identity, lock_of_dead};
use std::fs::{self, File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PREFIX: &str = "mmscale-scratch-";

/// A folder with a random name that only this user can read. It is removed when this is dropped. A
/// lock shows that it is in use, until all processes that have inherited it have ended.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// Makes a folder below the system's folder for temporary files.
    pub fn new() -> Result<Self> {
        Self::below(&std::env::temp_dir())
    }
    fn below(place: &Path) -> Result<Self> {
        // While this process runs, no other process takes the folder for a leftover.
        let prefix = format!("{PREFIX}{}-", Identity::own());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(place)?;
        let lock = open(folder.path())?;
        lock.try_lock()?;
        Ok(Self { folder, _lock: lock })
    }
    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn open(folder: &Path) -> Result<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags).open(folder)
}

/// Returns the tool that made a folder, from its name.
fn owner(name: &str) -> Option<Identity> {
    name.strip_prefix(PREFIX)?.rsplit_once('-')?.0.parse().ok()
}

/// Removes folders of this user that are not in use. Returns the removed ones, and those that could
/// not be removed.
pub(crate) fn remove_stale() -> (Vec<PathBuf>, Vec<PathBuf>) {
    remove_stale_below(&std::env::temp_dir())
}

fn remove_stale_below(place: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    // SAFETY: reads a number.
    let user = unsafe { libc::geteuid() };
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some(owner) = owner(&entry.file_name().to_string_lossy()) else { continue };
        let own = |file: &File| file.metadata().is_ok_and(|data| data.uid() == user);
        let Some(folder) = open(&path).ok().filter(own) else { continue };
        if let Some(_lock) = lock_of_dead(owner, folder) {
            let gone = fs::remove_dir_all(&path).is_ok();
            if gone { removed.push(path) } else { left.push(path) }
        }
    }
    (removed, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_dead_runs_are_removed_and_no_others() {
        let place = tempfile::tempdir().unwrap();
        let used = Scratch::below(place.path()).unwrap();
        let left = place.path().join(format!("{PREFIX}1-0-left"));
        fs::create_dir_all(left.join("below")).unwrap();
        let other = place.path().join("other");
        fs::create_dir(&other).unwrap();
        let link = place.path().join(format!("{PREFIX}1-0-link"));
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert_eq!(remove_stale_below(place.path()), (vec![left], vec![]));
        assert!(used.path().exists() && other.exists() && link.exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
