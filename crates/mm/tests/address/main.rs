//! Address spaces: the rules of each system call, a model of all of them, failures, defects.

mod machine;
mod model;
mod random;
mod steps;
