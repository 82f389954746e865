//! Everything that the memory manager promises, on CPUs that are stepped by hand. One program: what
//! is generic over the machine is then compiled for it once.

mod address;
mod ages;
mod calls;
mod lru;
mod reclaim;
mod space;
mod swap;
mod table;
