//! Address spaces on many CPUs.

mod killed;
mod links;
mod process;
mod reaped;
mod remote;
mod retry;
mod swarm;
