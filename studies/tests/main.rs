//! The studies as a user runs them, and what is asked and refused before they run.

mod churn;
mod fake;
mod ipi;
mod pcp;
mod plan;
mod planted;
mod policies;
mod reap;
mod runner;
mod shelf;
mod shipped;
mod tiny;
mod vmstat;
