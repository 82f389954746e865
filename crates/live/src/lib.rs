//! Tools around the live kernel.
//!
//! | module | what it does |
//! |---|---|
//! | `ab` | compares two values of a kernel setting, or of a parameter, run by run in pairs |
//! | `counts` | compares counts of the kernel's mechanisms with those of the simulator |
//! | `holders` | says which holders of contended locks the kernel reports |
//! | `observe` | shows what the kernel does while other programs run on it |
//! | `rounds` | runs a script for a number of rounds, between marks of the caller |
//! | `stress` | runs stress-ng as the load of an observation |
//! | `turns` | runs a script on all CPUs, whose programs take turns |

pub mod ab;
pub mod counts;
pub mod holders;
pub mod observe;
pub mod rounds;
pub mod stress;
pub mod turns;

pub use mmscale_linux::{Leftovers, Scratch, is_emulated};

use std::collections::BTreeMap;

/// Restores settings and removes what runs and comparisons left that were killed.
pub fn clear_leftovers() -> Leftovers {
    let mut found = mmscale_linux::clear();
    let instances = counts::clear();
    found.done.extend(instances.done);
    found.failed.extend(instances.failed);
    found
}

/// Returns the properties of this computer, and the policies that its kernel has by its version,
/// with the simulated runs to compare it with.
pub fn provenance() -> BTreeMap<String, String> {
    let mut all = mmscale_linux::provenance();
    all.extend(mmscale_harness::running_kernel().map(|what| ("policies".to_owned(), what)));
    all
}
