//! The messages from the first process of a machine to the host, over a serial port.
//!
//! A frame is a tag, the number of bytes, least byte first, and the bytes. The port carries bytes
//! as they are, since the guest makes it raw. Frames follow [`HELLO`].

use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// The bytes before the first frame.
pub(crate) const HELLO: &[u8] = b"\nmmscale\n";

/// The most bytes of a frame; a longer one is noise.
const MAX_BYTES: u32 = 64 << 20;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The machine is up.
    Up(Up),
    /// The symbols of its kernel: text as in /proc/kallsyms, deflated.
    Symbols(Vec<u8>),
    /// Bytes of the command's standard output.
    Output(Vec<u8>),
    /// Bytes of its standard error.
    Error(Vec<u8>),
    /// The command has ended with this exit code; 128 and more is a signal.
    Exit(i32),
    /// The guest could not do its part.
    Failed(String),
}

/// The properties of a machine and its kernel, as the guest sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Up {
    /// The release of the kernel, as `uname -r` has it.
    pub release: String,
    /// Its version, as `uname -v` has it: with the model of preemption.
    pub version: String,
    /// CPUs that are online.
    pub cpus: usize,
    /// The kernel's line on memory that it clears by itself; empty if it has none.
    pub auto_init: String,
    /// Whether its LRU lists have generations.
    pub mglru: bool,
}

impl Frame {
    fn parts(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Up(up) => (b'u', serde_json::to_vec(up).expect("plain data")),
            Self::Symbols(bytes) => (b's', bytes.clone()),
            Self::Output(bytes) => (b'o', bytes.clone()),
            Self::Error(bytes) => (b'e', bytes.clone()),
            Self::Exit(code) => (b'x', code.to_le_bytes().to_vec()),
            Self::Failed(why) => (b'f', why.clone().into_bytes()),
        }
    }
    fn of(tag: u8, bytes: Vec<u8>) -> Option<Self> {
        Some(match tag {
            b'u' => Self::Up(serde_json::from_slice(&bytes).ok()?),
            b's' => Self::Symbols(bytes),
            b'o' => Self::Output(bytes),
            b'e' => Self::Error(bytes),
            b'x' => Self::Exit(i32::from_le_bytes(bytes.try_into().ok()?)),
            b'f' => Self::Failed(String::from_utf8_lossy(&bytes).into_owned()),
            _ => return None,
        })
    }

    /// Writes the frame.
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (tag, bytes) = self.parts();
        to.write_all(&[tag])?;
        to.write_all(&(bytes.len() as u32).to_le_bytes())?;
        to.write_all(&bytes)
    }

    /// Reads the next frame. `None` at the end of the input, also in the middle of a frame: the
    /// machine has ended.
    ///
    /// # Errors
    /// The input cannot be read, or is no frame.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut head = [0; 5];
        if !filled(from, &mut head)? {
            return Ok(None);
        }
        let size = u32::from_le_bytes(head[1..].try_into().expect("four bytes"));
        let noise = || io::Error::new(io::ErrorKind::InvalidData, "the port carries noise");
        if size > MAX_BYTES {
            return Err(noise());
        }
        let mut bytes = vec![0; size as usize];
        if !filled(from, &mut bytes)? {
            return Ok(None);
        }
        Self::of(head[0], bytes).map(Some).ok_or_else(noise)
    }
}

/// Reads up to and with [`HELLO`]. Returns whether it was found.
pub(crate) fn hello(from: &mut impl Read) -> io::Result<bool> {
    let mut last = Vec::new();
    let mut byte = [0];
    while last != HELLO {
        if !filled(from, &mut byte)? {
            return Ok(false);
        }
        last.push(byte[0]);
        if last.len() > HELLO.len() {
            last.remove(0);
        }
    }
    Ok(true)
}

/// Fills the buffer. Returns `false` if the input ends before.
fn filled(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Frame> {
        let up = Up { release: "6.12.1".to_owned(), cpus: 4, ..Up::default() };
        vec![
            Frame::Up(up),
            Frame::Symbols(vec![0, 255, 10]),
            Frame::Output(b"a\r\nb".to_vec()),
            Frame::Error(vec![]),
            Frame::Failed("no".to_owned()),
            Frame::Exit(-1),
        ]
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        let mut bytes = b"noise of the port".to_vec();
        bytes.extend(HELLO);
        for frame in all() {
            frame.write(&mut bytes).unwrap();
        }
        let mut input = &bytes[..];
        assert!(hello(&mut input).unwrap());
        for frame in all() {
            assert_eq!(Frame::read(&mut input).unwrap(), Some(frame));
        }
        assert_eq!(Frame::read(&mut input).unwrap(), None);
    }

    #[test]
    fn a_machine_that_ends_early_leaves_whole_frames() {
        let mut bytes = Vec::new();
        Frame::Output(vec![1; 100]).write(&mut bytes).unwrap();
        for cut in 0..bytes.len() {
            assert_eq!(Frame::read(&mut &bytes[..cut]).unwrap(), None, "{cut}");
        }
        assert!(!hello(&mut &b"\nmmscal"[..]).unwrap());
    }

    #[test]
    fn noise_is_an_error() {
        assert!(Frame::read(&mut &b"z\x01\0\0\0a"[..]).is_err());
        assert!(Frame::read(&mut &b"o\xff\xff\xff\xffa"[..]).is_err());
        assert!(Frame::read(&mut &b"x\x01\0\0\0a"[..]).is_err());
    }
}
