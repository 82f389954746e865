//! Address spaces on many CPUs.

mod killed;
mod process;
mod reaped;
mod swarm;
