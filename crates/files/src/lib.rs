//! Opening files for all commands: input of bounded size, and folders that others may write to.
//!
//! There are two kinds of files, and each has its rules.
//!
//! | file | links | pipes, devices, folders | owner |
//! |---|---|---|---|
//! | *named* in a call ([`text`], [`bytes`]) | followed, as by `cat` | refused; pipes of the shell (`<(..)`) are read, others where [`Pipe::Read`] is given | any |
//! | *kept* in a folder ([`Folder`]) | refused | refused | any in a folder that is only read; in one that is written, the user as whom this process writes there, or root |
//!
//! A named file is what the caller asked for, and following a link shows nothing that the caller
//! could not read. The names of kept files can be known in advance, so another user with access to
//! the folder can place anything under them.
//!
//! Every read has a limit ([`Limit`]) and ends there. Nothing waits for a writer of a pipe unless
//! the caller named the pipe. A file is written under another name and renamed, so that it is whole
//! or not there.

mod folder;
mod lock;
mod read;
mod write;

pub use folder::{Existing, Folder, FolderError};
pub use lock::Lock;
pub use read::{Limit, Pipe, ReadError, bytes, text};
pub use write::Written;
