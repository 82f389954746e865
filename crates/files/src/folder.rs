//! Folders with files of this program, which others may write to.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

use crate::read::{Limit, ReadError, bounded, into_text, kind};

/// Why a folder or a file in it could not be used. Existing files are unchanged.
#[derive(Debug, Error)]
pub enum FolderError {
    /// The path is, or leads through, a file.
    #[error("cannot write results to `{path}`: it is not a directory; give -o a directory")]
    NotADirectory {
        /// The path of the directory.
        path: PathBuf,
    },
    /// A folder within a folder is a link.
    #[error("cannot use `{path}`: it is a link; remove it, or give the folder that it leads to")]
    Link {
        /// The path of the link.
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
    /// The lock of a file cannot be used.
    #[error("cannot lock `{path}`: {why}; remove it")]
    Lock {
        /// The path of the lock.
        path: PathBuf,
        /// The reason.
        #[source]
        why: ReadError,
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

/// An open folder. All files are opened relative to it, so that a folder that is replaced by a link
/// after the start leads nowhere else.
#[derive(Clone, Debug)]
pub struct Folder {
    pub(crate) at: Arc<OwnedFd>,
    pub(crate) path: PathBuf,
    pub(crate) existing: Existing,
    /// The user as whom files are created here. `None` if the folder is only read.
    own: Option<u32>,
}

const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

impl Folder {
    /// Creates the directory if it is missing, and tests writing to it, so that a run does not fail
    /// to store its results at its end. Links in a path that a call names are followed.
    pub fn open(path: &Path, existing: Existing) -> Result<Self, FolderError> {
        if path.exists() && !path.is_dir() {
            return Err(FolderError::NotADirectory { path: path.to_owned() });
        }
        let opened = fs::create_dir_all(path).and_then(|()| opened(CWD, path, FOLDER));
        let at = opened.map_err(|source| failed(path, source))?;
        Self { at: Arc::new(at), path: path.to_owned(), existing, own: None }.tested()
    }

    /// Opens a directory that is only read.
    pub fn only_read(path: &Path) -> io::Result<Self> {
        let at = Arc::new(opened(CWD, path, FOLDER)?);
        Ok(Self { at, path: path.to_owned(), existing: Existing::Keep, own: None })
    }

    /// Opens a directory in this one, which is created if it is missing. A link is refused.
    pub fn inside(&self, name: &str) -> Result<Self, FolderError> {
        let path = self.path.join(name);
        let made = match rustix::fs::mkdirat(&*self.at, name, Mode::from_raw_mode(0o777)) {
            Err(Errno::EXIST) => Ok(()),
            made => made.map_err(io::Error::from),
        };
        let at = made.and_then(|()| opened(&*self.at, name, FOLDER | OFlags::NOFOLLOW));
        let at = at.map_err(|source| match self.kind(name) {
            Some(FileType::Symlink) => FolderError::Link { path: path.clone() },
            _ => failed(&path, source),
        })?;
        Self { at: Arc::new(at), path, existing: self.existing, own: None }.tested()
    }

    /// Creates a file and removes it, and notes the user as whom that was done.
    fn tested(self) -> Result<Self, FolderError> {
        let owner = self.part().and_then(|part| Ok(part.file.metadata()?.uid()));
        let owner = owner.map_err(|source| failed(&self.path, source))?;
        Ok(Self { own: Some(owner), ..self })
    }

    /// Returns the path of a file, for messages.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns what has a name in this folder; a link is a link, even if it leads nowhere.
    pub(crate) fn kind(&self, name: &str) -> Option<FileType> {
        let about = rustix::fs::statat(&*self.at, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(about.st_mode))
    }

    /// Returns whether something has a name in this folder.
    pub fn has(&self, name: &str) -> bool {
        self.kind(name).is_some()
    }

    /// Checks, before a run, whether a file may be written under a name.
    pub fn free(&self, name: &str) -> Result<(), FolderError> {
        match (self.kind(name), self.existing) {
            (None, _) => Ok(()),
            (Some(_), Existing::Keep) => Err(FolderError::Exists { path: self.path(name) }),
            (Some(FileType::Directory), Existing::Replace) => {
                Err(FolderError::IsADirectory { path: self.path(name) })
            }
            (Some(_), Existing::Replace) => Ok(()),
        }
    }

    /// Returns the names of all entries that end in `suffix`, sorted.
    pub fn names(&self, suffix: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&*self.at)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(Some(name).filter(|name| name.ends_with(suffix)));
        }
        names.sort();
        Ok(names)
    }

    /// Returns the text of a file; `None` if there is none.
    pub fn read(&self, name: &str, limit: Limit) -> Result<Option<String>, ReadError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        match opened(&*self.at, name, flags | OFlags::CLOEXEC) {
            Ok(file) => {
                let file = self.checked(File::from(file))?;
                into_text(bounded(file, limit)?).map(Some)
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(_) if self.kind(name) == Some(FileType::Symlink) => {
                Err(ReadError::NotAFile("a link"))
            }
            Err(why) => Err(why.into()),
        }
    }

    /// Returns the file if it is a regular file that is trusted here.
    pub(crate) fn checked(&self, file: File) -> Result<File, ReadError> {
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(ReadError::NotAFile(kind(about.file_type())));
        }
        match self.own {
            Some(own) if about.uid() != own && about.uid() != 0 => {
                Err(ReadError::Foreign { owner: about.uid(), own })
            }
            _ => Ok(file),
        }
    }
}

/// Opens a path relative to a folder.
pub(crate) fn opened(
    at: impl std::os::fd::AsFd,
    path: impl rustix::path::Arg,
    flags: OFlags,
) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(at, path, flags, Mode::from_raw_mode(0o600))?)
}

fn failed(path: &Path, source: io::Error) -> FolderError {
    match source.kind() {
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            FolderError::NotADirectory { path: path.to_owned() }
        }
        _ => FolderError::Io { path: path.to_owned(), source },
    }
}
