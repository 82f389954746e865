//! Reports of other tools, whole, damaged and in mails.

mod damaged;
mod generated;
mod inputs;
mod klockstat;
mod live;
mod lock_stat;
mod mails;
mod mutated;
mod perf;
mod samples;
