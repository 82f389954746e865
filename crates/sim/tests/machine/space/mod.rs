//! Address spaces on many CPUs.

mod process;
mod swarm;
