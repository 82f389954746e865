//! Panics in a program without std.

use core::ffi::{CStr, c_char};
use core::fmt::Write;
use core::panic::PanicInfo;

unsafe extern "C" {
    /// Ends the program after an error that cannot be reported as a status: a wrong call, or
    /// structures that contradict one another. Gets a text in English. Does not return. Asked for
    /// by a library without the feature `std` only.
    fn mms_panic(text: *const c_char) -> !;
}

/// A text that ends with a 0. It is cut off where its room ends.
struct Text {
    bytes: [u8; Self::MOST + 1],
    len: usize,
}

impl Text {
    /// The most bytes before the 0.
    const MOST: usize = 255;
}

impl Write for Text {
    fn write_str(&mut self, part: &str) -> core::fmt::Result {
        let room = &mut self.bytes[self.len..Self::MOST];
        let fits = part.len().min(room.len());
        room[..fits].copy_from_slice(&part.as_bytes()[..fits]);
        self.len += fits;
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let mut text = Text { bytes: [0; Text::MOST + 1], len: 0 };
    // Writing to `Text` does not fail.
    let _ = write!(text, "{info}");
    let text = CStr::from_bytes_until_nul(&text.bytes).unwrap_or(c"panic");
    // SAFETY: the program defines it as the header says.
    unsafe { mms_panic(text.as_ptr()) }
}
