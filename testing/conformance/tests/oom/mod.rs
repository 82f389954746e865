//! A machine without memory: who is killed, who waits, and that it recovers. Each run looks at
//! itself at the end: everything adds up, and is given back.

mod kills;
mod reaping;
mod swarm;
mod unseen;
pub(crate) mod world;
