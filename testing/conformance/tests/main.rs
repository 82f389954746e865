//! The suite on the simulated machine and on threads, tests of a system that has run out of memory,
//! the stacks of tasks, and the end of a run.

mod ending;
mod groups;
mod machines;
mod oom;
mod policies;
mod shared_lines;
mod stacks;
