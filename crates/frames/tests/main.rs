//! Tests of the frame allocator's guarantees, on CPUs that are stepped by hand. They are one
//! program, so that code that is generic over the machine is compiled once.

mod bare;
mod caches;
mod decay_rules;
mod frames;
mod pcp_rules;
mod vmstat_rules;
mod zone_rules;
