//! Everything that the frame allocator promises, on CPUs that are stepped by hand. One program, so
//! that code that is generic over the machine is compiled for it once.

mod bare;
mod decay_rules;
mod frames;
mod pcp_rules;
mod vmstat_rules;
mod zone_rules;
