//! The suite on the simulated machine and on threads, what is true of a system that has run out of
//! memory, and the stacks of tasks.

mod machines;
mod oom;
mod policies;
mod stacks;
