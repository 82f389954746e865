//! Swap: slots, the swap cache, writing and reading, on a machine whose CPUs are stepped by the
//! tests.

mod compressed;
mod contents;
mod errors;
mod machine;
mod slots;
