//! Everything that the memory manager promises, on CPUs that are stepped by hand. One program: what
//! is generic over the machine is then compiled for it once.

mod address;
mod ages;
mod bare;
mod calls;
mod decay_rules;
mod frames;
mod inside;
mod lru;
mod pcp_rules;
mod reclaim;
mod space;
mod swap;
mod table;
mod vmstat_rules;
mod zone_rules;
