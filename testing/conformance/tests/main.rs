//! The suite on the simulated machine and on threads, tests of a system that has run out of memory,
//! and the stacks of tasks.

mod machines;
mod oom;
mod policies;
mod stacks;
