//! Address spaces on many CPUs.

mod killed;
mod links;
mod process;
mod reaped;
mod retry;
mod swarm;
