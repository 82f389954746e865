//! Files that are whole or not there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a file could not be written. What was there before is as it was.
#[derive(Debug, Error)]
pub enum FolderError {
    /// The path is a file's, or leads through one.
    #[error("cannot write results to `{path}`: it is not a directory; give -o a directory")]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot write `{path}`: {source}; nothing is left half-written")]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A directory for results.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes the directory where it is missing, and tries to write there, so that a run does not
    /// find out at its end that its results have no place.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        if path.exists() && !path.is_dir() {
            return Err(FolderError::NotADirectory { path: path.to_owned() });
        }
        let fail = |source: io::Error| match source.kind() {
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                FolderError::NotADirectory { path: path.to_owned() }
            }
            _ => FolderError::Io { path: path.to_owned(), source },
        };
        fs::create_dir_all(path).map_err(fail)?;
        let folder = Self(path.to_owned());
        let probe = folder.temporary("probe");
        File::create(&probe).and_then(|_| fs::remove_file(&probe)).map_err(fail)?;
        Ok(folder)
    }

    /// Writes a file: under another name first, on to the disk, then renamed. It replaces what had
    /// the name before.
    pub fn write(&self, name: &str, contents: &str) -> Result<PathBuf, FolderError> {
        self.write_with(name, |file| file.write_all(contents.as_bytes()))
    }

    fn write_with(
        &self,
        name: &str,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<PathBuf, FolderError> {
        let (path, temporary) = (self.0.join(name), self.temporary(name));
        let whole = (|| {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).open(&temporary)?;
            fill(&mut file)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            // The new name is in the directory; a crash must not take it back.
            File::open(&self.0)?.sync_all()
        })();
        match whole {
            Ok(()) => Ok(path),
            Err(source) => {
                // What went wrong is the thing to tell; a leftover that cannot be removed either
                // has a name that says what it is.
                let _ = fs::remove_file(&temporary);
                Err(FolderError::Io { path, source })
            }
        }
    }

    /// A name that no result has, different for every process.
    fn temporary(&self, name: &str) -> PathBuf {
        self.0.join(format!(".{name}.{}.part", std::process::id()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entry = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(entry).collect();
        names.sort();
        names
    }

    #[test]
    fn missing_folders_are_made_and_files_replaced() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b");
        let folder = Folder::open(&path).unwrap();
        folder.write("run.json", "old").unwrap();
        let file = folder.write("run.json", "new").unwrap();
        assert_eq!(fs::read_to_string(file).unwrap(), "new");
        assert_eq!(names(&path), ["run.json"]);
    }

    #[test]
    fn a_full_disk_leaves_the_old_file_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        folder.write("run.json", "old").unwrap();
        let full = |file: &mut File| {
            file.write_all(b"ne")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        };
        let error = folder.write_with("run.json", full).unwrap_err().to_string();
        assert!(error.contains("run.json") && error.contains("no storage space"), "{error}");
        assert_eq!(names(root.path()), ["run.json"]);
        assert_eq!(fs::read_to_string(root.path().join("run.json")).unwrap(), "old");
    }

    #[test]
    fn a_file_in_the_way_is_a_wrong_call() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "x").unwrap();
        for path in [file.clone(), file.join("below")] {
            let error = Folder::open(&path).unwrap_err();
            assert!(matches!(error, FolderError::NotADirectory { .. }), "{error}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "x");
    }
}
