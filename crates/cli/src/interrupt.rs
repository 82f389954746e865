//! Ctrl-C.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mmscale_study::Interrupt;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// An interrupt that the first Ctrl-C (or SIGTERM) sets; the second ends the process at once.
/// signal-hook does both with a flag and no thread of its own, unlike ctrlc.
pub(crate) fn on_signals() -> io::Result<Interrupt> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: the flag is still clear when the first signal passes here.
        flag::register_conditional_default(signal, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(Interrupt::new(stop))
}
