//! Calls to other CPUs, on CPUs that are stepped by the tests.

mod common;
mod leaving;
mod rules;
mod waits;
