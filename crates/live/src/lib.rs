//! Tools around the live kernel.
//!
//! | module | what it does |
//! |---|---|
//! | `ab` | compares two values of a kernel setting, or of a parameter, run by run in pairs |
//! | `observe` | shows what the kernel does while other programs run on it |
//! | `stress` | runs stress-ng as the load of an observation |

pub mod ab;
pub mod observe;
pub mod stress;

pub use mmscale_linux::{Leftovers, clear as clear_leftovers};

use std::collections::BTreeMap;

/// Returns the properties of this computer, and the policies that its kernel has by its version,
/// with the simulated runs to compare it with.
pub fn provenance() -> BTreeMap<String, String> {
    let mut all = mmscale_linux::provenance();
    all.extend(mmscale_harness::running_kernel().map(|what| ("policies".to_owned(), what)));
    all
}
