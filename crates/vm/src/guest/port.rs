//! The serial port from a guest to the host: frames, of several threads.

use crate::frames::{Frame, HELLO};
use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::sync::{Mutex, PoisonError};

/// The second serial port; the console has the first.
const PATH: &str = "/dev/ttyS1";

/// The most bytes of output in a frame.
const PART_BYTES: usize = 4096;

/// The open port.
pub(super) struct Port(Mutex<BufWriter<File>>);

impl Port {
    /// Opens the port, and says hello.
    pub(super) fn open() -> io::Result<Self> {
        // tidy: opened: a device of the machine
        let file = OpenOptions::new().read(true).write(true).open(PATH)?;
        // A terminal would change the ends of lines.
        let mut settings = tcgetattr(&file)?;
        settings.make_raw();
        tcsetattr(&file, OptionalActions::Now, &settings)?;
        let mut writer = BufWriter::new(file);
        writer.write_all(HELLO)?;
        Ok(Self(Mutex::new(writer)))
    }

    /// Sends a frame.
    pub(super) fn send(&self, frame: &Frame) -> io::Result<()> {
        // A panic of another thread cannot leave half a frame: it would be in `write_all`.
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        frame.write(&mut *writer)?;
        writer.flush()
    }

    /// Sends what can be read, as frames of this kind, until its end.
    pub(super) fn forward(&self, mut from: impl Read, kind: fn(Vec<u8>) -> Frame) {
        let mut part = vec![0; PART_BYTES];
        while let Ok(size @ 1..) = from.read(&mut part) {
            if self.send(&kind(part[..size].to_vec())).is_err() {
                return;
            }
        }
    }

    /// Waits until the host has everything.
    pub(super) fn drain(&self) {
        let writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The machine ends anyway.
        let _ = tcdrain(writer.get_ref());
    }
}
