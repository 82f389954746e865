//! A copy of the tree below the target folder. The user's tree is only read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The copy of the tree.
pub(super) struct TreeCopy {
    pub(super) root: PathBuf,
}

impl TreeCopy {
    /// Copies the files that git tracks or would add to `folder`, except for those that the caller
    /// writes. A file with the same content is left untouched, so that cargo does not build it
    /// again.
    ///
    /// # Errors
    /// Fails if a file cannot be read or written.
    pub(super) fn new(
        root: &Path,
        folder: &Path,
        is_written: impl Fn(&str) -> bool,
    ) -> Result<Self, String> {
        let copy = Self { root: folder.join("tree") };
        fs::create_dir_all(&copy.root).map_err(|why| format!("{}: {why}", copy.root.display()))?;
        let mut git = Command::new("git");
        git.current_dir(root).args(["ls-files", "-co", "--exclude-standard", "-z"]);
        let listed = git.output().map_err(|why| format!("starting git: {why}"))?.stdout;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let listed: BTreeSet<&str> = listed.split_terminator('\0').collect();
        let present: Vec<&str> =
            listed.iter().copied().filter(|file| root.join(file).exists()).collect();
        let had = folder.join("files");
        for old in fs::read_to_string(&had).unwrap_or_default().lines() {
            if present.binary_search(&old).is_err() {
                let _ = fs::remove_file(copy.root.join(old));
            }
        }
        for file in present.iter().filter(|file| !is_written(file)) {
            copy.copy(root, file)?;
        }
        fs::write(&had, present.join("\n")).map_err(|why| format!("{}: {why}", had.display()))?;
        Ok(copy)
    }
    /// Copies a file, or a link to a folder, of which `git` lists no more than the link.
    fn copy(&self, root: &Path, file: &str) -> Result<(), String> {
        let told = |why: std::io::Error| format!("{file}: {why}");
        let (from, to) = (root.join(file), self.root.join(file));
        if from.is_file() {
            return self.write(file, &fs::read(from).map_err(told)?);
        }
        if to.exists() {
            return Ok(());
        }
        let parent = to.parent().map_or(Ok(()), fs::create_dir_all);
        let link = parent.and_then(|()| fs::read_link(from));
        link.and_then(|link| std::os::unix::fs::symlink(link, to)).map_err(told)
    }
    /// Writes a file of the copy, unless it has this content.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn write(&self, file: &str, bytes: &[u8]) -> Result<(), String> {
        let path = self.root.join(file);
        if fs::read(&path).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        let written = path.parent().map_or(Ok(()), fs::create_dir_all);
        written.and_then(|()| fs::write(&path, bytes)).map_err(|why| format!("{file}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_files_behind_links_to_folders() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(from.path().join("machines")).unwrap();
        fs::create_dir_all(from.path().join("crates")).unwrap();
        fs::write(from.path().join("machines/one.toml"), "cpus = 1").unwrap();
        std::os::unix::fs::symlink("../machines", from.path().join("crates/machines")).unwrap();
        let copy = TreeCopy { root: to.path().to_owned() };
        // The second time everything is there.
        for _ in 0..2 {
            for file in ["machines/one.toml", "crates/machines"] {
                copy.copy(from.path(), file).unwrap();
            }
        }
        let copied = fs::read_to_string(to.path().join("crates/machines/one.toml")).unwrap();
        assert_eq!(copied, "cpus = 1");
    }
}
