//! Result files: written completely or not at all, without overwriting those of other runs.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use thiserror::Error;

/// Why a file could not be written. Existing files are unchanged.
#[derive(Debug, Error)]
pub enum FolderError {
    /// The path is, or leads through, a file.
    #[error("cannot write results to `{path}`: it is not a directory; give -o a directory")]
    NotADirectory {
        /// The path of the directory.
        path: PathBuf,
    },
    /// A file of another run has the name.
    #[error(
        "cannot write `{path}`: the file exists; give -o another place, or replace the file with \
         --replace"
    )]
    Exists {
        /// The path of the file.
        path: PathBuf,
    },
    /// The name is that of a directory.
    #[error("cannot replace `{path}`: it is a directory; give -o another place")]
    IsADirectory {
        /// The path of the directory.
        path: PathBuf,
    },
    /// The operating system returned an error.
    #[error("cannot write `{path}`: {source}; nothing is left half-written")]
    Io {
        /// The path of the directory or file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Treatment of an existing file with the name of a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// Keep the existing file.
    Keep,
    /// Replace it by the new file in one step. A link is replaced itself; its target stays.
    Replace,
}

/// A directory for results, which may belong to another user. A temporary file has a random name
/// and is created exclusively, links are never followed, and a file is replaced only under a name
/// that was asked for.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    existing: Existing,
}

/// A file that was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// The path of the file.
    pub path: PathBuf,
    /// The requested path, if a file appeared there after the check in [`Folder::free`].
    pub instead_of: Option<PathBuf>,
}

impl Folder {
    /// Creates the directory if it is missing, and tests writing to it, so that a run does not fail
    /// to store its results at its end.
    pub fn open(path: &Path, existing: Existing) -> Result<Self, FolderError> {
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
        let folder = Self { path: path.to_owned(), existing };
        folder.temporary().and_then(NamedTempFile::close).map_err(fail)?;
        Ok(folder)
    }

    /// Checks, before a run, whether a file may be written under a name.
    pub fn free(&self, name: &str) -> Result<(), FolderError> {
        let path = self.path.join(name);
        // Check the name itself: a dangling link exists, too.
        match (fs::symlink_metadata(&path), self.existing) {
            (Err(_), _) => Ok(()),
            (Ok(_), Existing::Keep) => Err(FolderError::Exists { path }),
            (Ok(data), Existing::Replace) if data.is_dir() => {
                Err(FolderError::IsADirectory { path })
            }
            (Ok(_), Existing::Replace) => Ok(()),
        }
    }

    /// Writes a file under a random name, syncs it to disk, then renames it. If another file has
    /// the name by then and [`Existing::Keep`] applies, the new name gets a number.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> Result<Written, FolderError> {
        self.write_with(name, |file| file.write_all(contents.as_ref()))
    }

    fn write_with(
        &self,
        name: &str,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<Written, FolderError> {
        let path = self.path.join(name);
        // A temporary file is removed when it is dropped.
        let whole = (|| {
            let mut temporary = self.temporary()?;
            fill(temporary.as_file_mut())?;
            temporary.as_file().sync_all()?;
            let written = self.publish(temporary, &path)?;
            // Sync the directory too, so that a crash cannot undo the rename.
            File::open(&self.path)?.sync_all()?;
            Ok(written)
        })();
        whole.map_err(|source| FolderError::Io { path, source })
    }

    /// Creates a file with the permissions that other files of this user get.
    fn temporary(&self) -> io::Result<NamedTempFile> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".mmscale-").suffix(".part").permissions(Permissions::from_mode(0o666));
        builder.tempfile_in(&self.path)
    }

    fn publish(&self, mut temporary: NamedTempFile, path: &Path) -> io::Result<Written> {
        const MOST: u32 = 10_000;
        if self.existing == Existing::Replace {
            temporary.persist(path)?;
            return Ok(Written { path: path.to_owned(), instead_of: None });
        }
        for number in 1..=MOST {
            let to = numbered(path, number);
            match temporary.persist_noclobber(&to) {
                Ok(_) => {
                    let instead_of = (number > 1).then(|| path.to_owned());
                    return Ok(Written { path: to, instead_of });
                }
                Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => {
                    temporary = failed.file;
                }
                Err(failed) => return Err(failed.error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// Returns `run.json`, `run.2.json` and so on.
fn numbered(path: &Path, number: u32) -> PathBuf {
    match (number, path.extension().and_then(|extension| extension.to_str())) {
        (1, _) => path.to_owned(),
        (_, Some(extension)) => path.with_extension(format!("{number}.{extension}")),
        (_, None) => path.with_extension(number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

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
    fn a_full_disk_leaves_the_old_file_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path(), Existing::Replace).unwrap();
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
            let error = Folder::open(&path, Existing::Keep).unwrap_err();
            assert!(matches!(error, FolderError::NotADirectory { .. }), "{error}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "x");
    }
}
