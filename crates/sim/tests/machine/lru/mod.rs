//! The LRU on many CPUs.

mod demand;
mod swarm;
pub(crate) mod world;
