//! The LRU on many CPUs.

mod demand;
mod swarm;
mod world;
