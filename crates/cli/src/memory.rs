//! The allocator of the `mmscale` binary: memory that cannot be had ends the program with a
//! sentence.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::SIGABRT;
use signal_hook::low_level;

/// The size of the last allocation that failed; 0 if none has.
static FAILED: AtomicUsize = AtomicUsize::new(0);

/// The allocator of the system, which notes the size of an allocation that fails.
#[derive(Debug)]
pub struct Memory;

/// Notes the size of an allocation that failed.
fn noted(memory: *mut u8, size: usize) -> *mut u8 {
    if memory.is_null() {
        // Relaxed: the thread that stores it is the one that aborts.
        FAILED.store(size, Ordering::Relaxed);
    }
    memory
}

// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what `System` needs.
        noted(unsafe { System.alloc(layout) }, layout.size())
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what `System` needs.
        noted(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises what `System` needs.
        noted(unsafe { System.realloc(memory, layout, size) }, size)
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller promises what `System` needs.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// A text of bounded size, for a place where nothing may be allocated.
struct Line {
    bytes: [u8; 256],
    used: usize,
}

impl std::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.get_mut(self.used..self.used + text.len()).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.used += text.len();
        Ok(())
    }
}

/// Replaces the abort after an allocation that failed by an exit with a message.
pub(crate) fn end_with_a_sentence() {
    let ended = || {
        let size = FAILED.load(Ordering::Relaxed);
        if size == 0 {
            // The abort has another reason.
            let _ = low_level::emulate_default_handler(SIGABRT);
            return;
        }
        let mut line = Line { bytes: [0; 256], used: 0 };
        let _ = writeln!(
            line,
            "error: {size} bytes of memory cannot be had; raise the limit (ulimit -v, or that of \
             the memory group), or use fewer CPUs, processes or --jobs"
        );
        let _ = rustix::io::write(rustix::stdio::stderr(), &line.bytes[..line.used]);
        low_level::exit(1);
    };
    // SAFETY: the handler calls only functions that are safe in a handler: it neither allocates nor
    // takes a lock. If it cannot be installed, an abort stays an abort.
    let _ = unsafe { low_level::register(SIGABRT, ended) };
}
