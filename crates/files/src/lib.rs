//! Opening files for all commands: input of bounded size, and folders that others may write to.
//!
//! There are two kinds of files, and each has its rules.
//!
//! A file that a call *names* ([`text`], [`bytes`], [`open`]) may belong to any user. Links are
//! followed, as by `cat`. Folders and devices are refused, and so are pipes, except for those of
//! the shell (`<(..)`) and where [`Pipe::Read`] is given.
//!
//! A file that is *kept* in a folder ([`Folder`]) is a regular file. Links, pipes, devices and
//! folders are refused. In a folder that is written, it belongs to the user as whom this process
//! writes there, or to root; in one that is only read, to any user.
//!
//! A named file is what the caller asked for, and following a link shows nothing that the caller
//! could not read. The names of kept files can be known in advance, so another user with access to
//! the folder can place anything under them.
//!
//! Every read has a limit ([`Limit`]) and ends there; a caller of [`open`] has its own. Nothing
//! waits for a writer of a pipe unless the caller named the pipe. A file is written under another
//! name and renamed, so that it is whole or not there.

mod folder;
mod lock;
mod read;
mod write;

pub use folder::{Existing, Folder, FolderError};
pub use lock::Lock;
pub use read::{Limit, Pipe, ReadError, bytes, open, text};
pub use write::Written;
