//! Locks between processes.

use std::fs::File;
use std::io;

use rustix::fs::{AtFlags, FileType, OFlags};

use crate::folder::{Folder, FolderError, opened};
use crate::read::ReadError;

/// A lock that this process holds. It ends with the process or when it is dropped, and its file is
/// then removed.
#[derive(Debug)]
pub struct Lock {
    file: File,
    folder: Folder,
    name: String,
}

impl Folder {
    /// Waits for the lock of a name, and takes it. The file of the lock is created if it is
    /// missing, and never written to.
    pub fn lock(&self, name: &str) -> Result<Lock, FolderError> {
        let fail = |why| FolderError::Lock { path: self.path(name), why };
        loop {
            let file = self.lock_file(name).map_err(fail)?;
            file.lock().map_err(|why| fail(why.into()))?;
            // The holder before may have removed the file, and others have a new one.
            let own = rustix::fs::fstat(&file).map_err(|why| fail(io::Error::from(why).into()))?;
            let there = rustix::fs::statat(&*self.at, name, AtFlags::SYMLINK_NOFOLLOW);
            if there.is_ok_and(|there| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)) {
                return Ok(Lock { file, folder: self.clone(), name: name.to_owned() });
            }
        }
    }

    fn lock_file(&self, name: &str) -> Result<File, ReadError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        match opened(&*self.at, name, flags | OFlags::CLOEXEC) {
            Ok(file) => self.checked(file.into()),
            Err(_) if self.kind(name) == Some(FileType::Symlink) => {
                Err(ReadError::NotAFile("a link"))
            }
            Err(why) if why.kind() == io::ErrorKind::IsADirectory => {
                Err(ReadError::NotAFile("a directory"))
            }
            Err(why) => Err(why.into()),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Before the lock ends, so that the file of another holder is never removed.
        let _ = rustix::fs::unlinkat(&*self.folder.at, &self.name, AtFlags::empty());
        let _ = self.file.unlock();
    }
}
