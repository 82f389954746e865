//! Calls to other CPUs, on CPUs that are stepped by hand.

mod common;
mod leaving;
mod rules;
mod waits;
