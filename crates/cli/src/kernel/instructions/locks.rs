//! The name of a lock, by the functions that take it.

use mmscale_vm::instructions::Hold;

use crate::kernel::class_at;

/// Returns the class of the lock of some holds, or its own name if it has one.
pub(super) fn class(hold: &Hold) -> &str {
    if let [name] = &hold.names[..] {
        return name;
    }
    class_at(&hold.acquire, &hold.caller, &hold.outer)
}

/// Returns the place that takes it: the caller, and the function that calls it.
pub(super) fn place(hold: &Hold) -> String {
    format!("{} < {}", hold.caller, hold.outer)
}
