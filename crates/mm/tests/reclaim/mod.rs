//! Reclaim of pages of a program, on a machine with one CPU that the test steps.

mod machine;
mod paged;
mod pressure;
mod storm;
mod verdicts;
