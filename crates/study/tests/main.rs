//! The studies as a user runs them, and what is asked and refused before they run.

mod calibrate;
mod churn;
mod fake;
mod ipi;
mod pcp;
mod plan;
mod planted;
mod policies;
mod reap;
mod runner;
mod shipped;
mod vmstat;
