//! The suite on the simulated machine and on threads, and what is true of a system that has run out
//! of memory.

mod machines;
mod oom;
mod policies;
