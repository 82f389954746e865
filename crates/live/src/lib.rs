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

pub use mmscale_linux::{Leftovers, clear as clear_leftovers, provenance};
