//! Files that are written completely or not at all.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::folder::{Existing, Folder, FolderError};

/// A file that was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// The path of the file.
    pub path: PathBuf,
    /// The requested path, if a file appeared there after the check in [`Folder::free`].
    pub instead_of: Option<PathBuf>,
}

/// An unfinished file, which is removed when it is dropped.
pub(crate) struct Part<'a> {
    pub(crate) file: File,
    folder: &'a Folder,
    name: String,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        // After a rename there is nothing to remove.
        let _ = rustix::fs::unlinkat(&*self.folder.at, &self.name, AtFlags::empty());
    }
}

impl Folder {
    /// Writes a file under another name, syncs it to disk, then renames it. If another file has the
    /// name by then and [`Existing::Keep`] applies, the new name gets a number.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> Result<Written, FolderError> {
        self.write_with(name, |file| file.write_all(contents.as_ref()))
    }

    fn write_with(
        &self,
        name: &str,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<Written, FolderError> {
        let whole = (|| {
            let mut part = self.part()?;
            fill(&mut part.file)?;
            part.file.sync_all()?;
            let written = self.publish(&part, name)?;
            // Sync the directory too, so that a crash cannot undo the rename.
            rustix::fs::fsync(&*self.at)?;
            Ok(written)
        })();
        whole.map_err(|source| FolderError::Io { path: self.path(name), source })
    }

    /// Creates a file of its own name, with the permissions that other files of this user get.
    pub(crate) fn part(&self) -> io::Result<Part<'_>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        const TRIES: u32 = 10_000;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        for _ in 0..TRIES {
            // Relaxed: each number is taken once.
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!(".mmscale-{}-{number}.part", std::process::id());
            let mode = Mode::from_raw_mode(0o666);
            match rustix::fs::openat(&*self.at, &name, flags | OFlags::CLOEXEC, mode) {
                Ok(file) => return Ok(Part { file: file.into(), folder: self, name }),
                // A file that a killed process with this number left, or another user's.
                Err(Errno::EXIST) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn publish(&self, part: &Part<'_>, name: &str) -> io::Result<Written> {
        const MOST: u32 = 10_000;
        if self.existing == Existing::Replace {
            rustix::fs::renameat(&*self.at, &part.name, &*self.at, name)?;
            return Ok(Written { path: self.path(name), instead_of: None });
        }
        for number in 1..=MOST {
            let to = numbered(name, number);
            match self.claim(part, &to) {
                Ok(()) => {
                    let instead_of = (number > 1).then(|| self.path(name));
                    return Ok(Written { path: self.path.join(to), instead_of });
                }
                Err(Errno::EXIST) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Renames a part if its new name is free.
    fn claim(&self, part: &Part<'_>, to: &Path) -> rustix::io::Result<()> {
        let (at, from) = (&*self.at, &part.name);
        match rustix::fs::renameat_with(at, from, at, to, RenameFlags::NOREPLACE) {
            // The file system has no such rename. A link fails if the name is taken, and dropping
            // the part removes its old name.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(at, from, at, to, AtFlags::empty())
            }
            done => done,
        }
    }
}

/// Returns `run.json`, `run.2.json` and so on.
fn numbered(name: &str, number: u32) -> PathBuf {
    let path = Path::new(name);
    match (number, path.extension().and_then(|extension| extension.to_str())) {
        (1, _) => path.to_owned(),
        (_, Some(extension)) => path.with_extension(format!("{number}.{extension}")),
        (_, None) => path.with_extension(number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
        assert_eq!(folder.names("").unwrap(), [".", "..", "run.json"]);
        assert_eq!(fs::read_to_string(root.path().join("run.json")).unwrap(), "old");
    }
}
