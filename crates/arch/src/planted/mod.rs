//! Planted faults: protocol errors that a test build can switch on, one at a time.
//!
//! A passing test shows little unless it fails where the code is wrong. Each [`Fault`] is one
//! deliberate error, such as a check that is not repeated or a wake-up that is lost. The code at
//! its place calls [`planted!`](crate::planted!):
//!
//! ```
//! use mmscale_arch::planted;
//!
//! let mut woken = false;
//! if !planted!(CompletionWakesOne) {
//!     woken = true;
//! }
//! assert!(woken);
//! ```
//!
//! The macro is the constant `false`, unless the feature `planted` is on. With the feature the
//! environment variable `MMSCALE_PLANTED` selects one fault by its name. `cargo xtask planted` runs
//! the tests once for each fault and reports the test that catches it.
//!
//! | file | contents |
//! |---|---|
//! | `faults` | the declaration of every fault |
//! | `selected` | the fault that the environment selects; compiled with the feature alone |

mod faults;
#[cfg(feature = "planted")]
mod selected;

pub use faults::Fault;

/// Whether the tests are expected to catch a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// They catch it within seconds: it is part of `cargo xtask planted --quick`.
    Quick,
    /// They catch it.
    Caught,
    /// They do not catch it, for this reason.
    Missed(&'static str),
}

/// Description of a fault.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// The fault.
    pub fault: Fault,
    /// The name that selects it.
    pub name: &'static str,
    /// The crate that contains it, without the prefix of all crates.
    pub krate: &'static str,
    /// Description of the error: one sentence.
    pub what: &'static str,
    /// A part of the names of the tests that are run first, because they are about this protocol.
    pub tests: &'static str,
    /// Whether it is expected to be caught.
    pub expected: Expected,
}

/// Whether this fault, a variant of [`Fault`], is selected: `planted!(RcuEnoughEarly)`. The
/// constant `false` without the feature `planted`.
#[macro_export]
macro_rules! planted {
    ($fault:ident) => {
        $crate::planted::is_selected($crate::planted::Fault::$fault)
    };
}

/// Returns `false`: this build has no planted faults.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is_selected(_: Fault) -> bool {
    false
}

/// Whether the environment selects this fault.
#[cfg(feature = "planted")]
#[inline]
pub fn is_selected(fault: Fault) -> bool {
    selected::is_selected(fault)
}

// The result is a constant: no code of a planted fault remains in this build.
#[cfg(not(feature = "planted"))]
const _: () = {
    let mut at = 0;
    while at < Fault::ALL.len() {
        assert!(!is_selected(Fault::ALL[at].fault));
        at += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_descriptions_are_one_sentence() {
        let names: BTreeSet<&str> = Fault::ALL.iter().map(|declared| declared.name).collect();
        assert_eq!(names.len(), Fault::ALL.len());
        for Declared { name, what, tests, expected, .. } in Fault::ALL {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{name}");
            assert!(what.ends_with('.') && !what.trim_end_matches('.').contains(". "), "{name}");
            assert!(!tests.is_empty(), "{name} names no tests");
            assert!(*expected != Expected::Missed(""), "{name} has no reason");
        }
    }
}
