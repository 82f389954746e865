//! The serial port: all that this kernel says.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};
use x86_64::instructions::port::Port;

/// The first serial port of a PC: its data register.
const DATA: u16 = 0x3f8;
/// The line status register, and its bit for "the transmitter takes a byte".
const STATUS: u16 = DATA + 5;
const READY: u8 = 1 << 5;

/// Whether a processor writes a line.
static WRITING: AtomicBool = AtomicBool::new(false);

struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let (mut data, mut status) = (Port::<u8>::new(DATA), Port::<u8>::new(STATUS));
        for byte in text.bytes() {
            // SAFETY: these registers of the serial port have no effect on memory.
            unsafe {
                while status.read() & READY == 0 {}
                data.write(byte);
            }
        }
        Ok(())
    }
}

/// Writes a line; other processors wait until it is written.
pub(crate) fn write_line(line: fmt::Arguments<'_>) {
    // Pairs with the store below.
    while WRITING.swap(true, Ordering::Acquire) {
        core::hint::spin_loop();
    }
    write_line_now(line);
    // Pairs with the exchange above.
    WRITING.store(false, Ordering::Release);
}

/// Writes a line, even amid that of another processor: for the last words of a panic.
pub(crate) fn write_line_now(line: fmt::Arguments<'_>) {
    // The port cannot fail.
    let _ = Serial.write_fmt(line);
    let _ = Serial.write_str("\n");
}

/// Writes a line to the serial port.
#[macro_export]
macro_rules! say {
    ($($part:tt)*) => { $crate::serial::write_line(format_args!($($part)*)) };
}
