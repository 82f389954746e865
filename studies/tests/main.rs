//! Tests of the studies, and of requests that are refused before anything runs.

mod blame;
mod churn;
mod emulated;
mod fake;
mod ipi;
mod look;
mod pcp;
mod plan;
mod planted;
mod policies;
mod reap;
mod registry;
mod robust;
mod runner;
mod shipped;
mod tiny;
mod vmstat;
