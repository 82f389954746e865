//! Swap: slots, the cache, the way out and the way in, on a machine whose CPUs the test steps.

mod contents;
mod errors;
mod machine;
mod slots;
