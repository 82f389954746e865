//! Bounded reads, and files that a call names.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use thiserror::Error;

/// The most bytes of a kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The kind, with its article: `a document`.
    pub what: &'static str,
    /// The number of bytes.
    pub bytes: u64,
}

impl Limit {
    /// Creates a limit.
    pub const fn new(what: &'static str, bytes: u64) -> Self {
        Self { what, bytes }
    }
}

/// Treatment of a pipe that a call names. One of the shell, as in `<(perf report)`, is always read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pipe {
    /// Read it to its end, and wait for its writer.
    Read,
    /// Refuse it.
    Refuse,
}

/// Why a file could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The operating system returned an error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The path is of something else than a regular file.
    #[error("it is {0}, not a regular file")]
    NotAFile(&'static str),
    /// The file belongs to another user.
    #[error("it belongs to user {owner}, and this process writes there as user {own}")]
    Foreign {
        /// The number of the owner.
        owner: u32,
        /// The number of the user as whom this process writes.
        own: u32,
    },
    /// The file is larger than the limit.
    #[error("it has more than {}, the limit for {}", Size(.0.bytes), .0.what)]
    Large(Limit),
    /// The file is not text.
    #[error("it is not UTF-8 text: line {line} has the byte 0x{byte:02x} at byte {at} of the file")]
    NotText {
        /// The number of the line, from 1.
        line: usize,
        /// The offset of the byte in the file, from 0.
        at: usize,
        /// The byte.
        byte: u8,
    },
}

/// A number of bytes with the largest unit that divides it.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n.is_multiple_of(1 << 20) => write!(f, "{} MiB", n >> 20),
            n if n.is_multiple_of(1 << 10) => write!(f, "{} KiB", n >> 10),
            n => write!(f, "{n} bytes"),
        }
    }
}

/// Returns the text of a file that a call names; `-` is standard input.
pub fn text(path: &Path, limit: Limit, pipe: Pipe) -> Result<String, ReadError> {
    into_text(bytes(path, limit, pipe)?)
}

/// Returns the bytes of a file that a call names; `-` is standard input.
pub fn bytes(path: &Path, limit: Limit, pipe: Pipe) -> Result<Vec<u8>, ReadError> {
    bounded(open(path, pipe)?, limit)
}

/// Opens a file that a call names, to read it in parts; `-` is standard input. The caller limits
/// how much it reads.
pub fn open(path: &Path, pipe: Pipe) -> Result<Box<dyn Read>, ReadError> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    // Without waiting for the writer of a pipe, and without taking a terminal.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?);
    let about = file.metadata()?;
    if about.is_file() {
        return Ok(Box::new(file));
    }
    if about.file_type().is_fifo() && (pipe == Pipe::Read || is_of_shell(path)) {
        // The first descriptor stays open, so that a writer that is already there keeps its reader.
        let reader = File::open(path)?;
        drop(file);
        return Ok(Box::new(reader));
    }
    Err(ReadError::NotAFile(kind(about.file_type())))
}

/// Returns whether a path is of a descriptor of this process, as a shell makes it for `<(..)`.
fn is_of_shell(path: &Path) -> bool {
    ["/dev/fd", "/proc/self/fd"].iter().any(|folder| path.starts_with(folder))
}

/// Reads to the end, or to one byte more than the limit.
pub(crate) fn bounded(from: impl Read, limit: Limit) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    from.take(limit.bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit.bytes {
        return Err(ReadError::Large(limit));
    }
    Ok(bytes)
}

pub(crate) fn into_text(bytes: Vec<u8>) -> Result<String, ReadError> {
    String::from_utf8(bytes).map_err(|why| {
        let (at, bytes) = (why.utf8_error().valid_up_to(), why.as_bytes());
        let line = 1 + bytes[..at].iter().filter(|&&byte| byte == b'\n').count();
        ReadError::NotText { line, at, byte: bytes[at] }
    })
}

/// Returns what a file is that is not regular.
pub(crate) fn kind(of: std::fs::FileType) -> &'static str {
    if of.is_dir() {
        "a directory"
    } else if of.is_symlink() {
        "a link"
    } else if of.is_fifo() {
        "a pipe"
    } else if of.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const SMALL: Limit = Limit::new("a test", 1 << 10);

    fn refused(path: &Path) -> String {
        text(path, SMALL, Pipe::Refuse).unwrap_err().to_string()
    }

    pub(crate) fn mkfifo(path: &Path) {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
    }

    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::write(at("full"), [b'x'; 1 << 10]).unwrap();
        fs::write(at("large"), [b'x'; (1 << 10) + 1]).unwrap();
        symlink(at("full"), at("link")).unwrap();
        mkfifo(&at("pipe"));
        let read = |name: &str| text(&at(name), SMALL, Pipe::Refuse);
        assert_eq!(read("full").unwrap().len(), 1 << 10);
        assert_eq!(read("link").unwrap().len(), 1 << 10);
        assert_eq!(refused(&at("large")), "it has more than 1 KiB, the limit for a test");
        assert_eq!(refused(&at("pipe")), "it is a pipe, not a regular file");
        assert_eq!(refused(root.path()), "it is a directory, not a regular file");
        assert_eq!(refused(Path::new("/dev/zero")), "it is a device, not a regular file");
    }

    #[test]
    fn a_pipe_is_read_to_its_end_where_that_is_allowed() {
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("pipe");
        mkfifo(&pipe);
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::write(pipe, "waits").unwrap()
        });
        assert_eq!(text(&pipe, SMALL, Pipe::Read).unwrap(), "waits");
        writer.join().unwrap();
    }

    #[test]
    fn the_place_of_a_byte_that_is_no_text_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x");
        fs::write(&path, b"one\ntwo\xff").unwrap();
        let what = "it is not UTF-8 text: line 2 has the byte 0xff at byte 7 of the file";
        assert_eq!(refused(&path), what);
    }
}
