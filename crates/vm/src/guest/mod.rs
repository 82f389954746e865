//! The first process of a machine: this program. It mounts what a command needs, runs the command
//! of its [`Job`], sends what the command writes to the host, and powers the machine off.
//!
//! | module | what it has |
//! |---|---|
//! | `archive` | the archive that the kernel unpacks into its first file system |
//! | `files` | the files in it: this program, its libraries, the job |
//! | `port` | the serial port to the host |
//! | `init` | what the first process does |

mod archive;
mod files;
mod init;
mod port;

pub(crate) use files::archive_of;
pub(crate) use init::LIBRARIES;
pub use init::{is_guest, main};

use serde::{Deserialize, Serialize};

/// A file that the command of a job needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFile {
    /// Its absolute path, the same in the machine.
    pub path: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The work of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The arguments of this program in the machine.
    pub args: Vec<String>,
    /// The folder in which the command runs; an absolute path.
    pub folder: String,
    /// Whether the guest sends the symbols of its kernel first.
    pub wants_symbols: bool,
}
