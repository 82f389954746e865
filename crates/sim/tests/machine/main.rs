//! The simulated machine, tested through the trait that the memory manager sees.

mod basics;
mod common;
