//! Reports of other tools, whole, damaged and in mails.

mod comparisons;
mod damaged;
mod forms;
mod generated;
mod generated_forms;
mod generated_kinds;
mod generated_profiles;
mod generated_tables;
mod inputs;
mod klockstat;
mod live;
mod lock_stat;
mod mails;
mod mutated;
mod perf;
mod samples;
