//! A machine without memory: the choice of victims, waiting, and recovery. Each run is checked at
//! the end: the structures are consistent, and all memory is freed.

mod kills;
mod reaping;
mod swarm;
mod unseen;
pub(crate) mod world;
