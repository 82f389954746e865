//! Marks between which the plugin counts instructions (`plugin/instructions.c`).
//!
//! A mark is an instruction without an effect, whose displacement the plugin recognises. On real
//! hardware, and without the plugin, it does nothing.

use std::arch::asm;

macro_rules! mark {
    ($kind:literal) => {
        // SAFETY: a NOP of seven bytes: `0f 1f 80` and a displacement, which no processor uses.
        // Memory accesses are not moved across it.
        unsafe { asm!(concat!(".byte 0x0f, 0x1f, 0x80, ", $kind, ", 0x53, 0x4d, 0x4d")) }
    };
}

/// Makes the plugin read its table of symbols. After it, the calling thread stays on its CPU.
#[inline]
pub fn arm() {
    mark!("1");
}

/// Begins a round: all that this CPU executes in the kernel after it counts.
#[inline]
pub fn begin() {
    mark!("2");
}

/// Ends a round.
#[inline]
pub fn end() {
    mark!("3");
}
