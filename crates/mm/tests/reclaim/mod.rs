//! Reclaim of a program's pages, on a machine with one CPU that is stepped by the tests.

mod machine;
mod paged;
mod pressure;
mod storm;
mod verdicts;
