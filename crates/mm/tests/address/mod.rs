//! Address spaces: the rules of each system call, a model of all of them, failures, defects.

mod advice;
mod disk;
mod failures;
mod files;
mod killed;
mod machine;
mod many;
mod mapping;
mod mappings;
mod model;
mod moving;
mod random;
mod reaped;
mod remote;
mod reverse;
mod sharing;
mod shortage;
mod silent;
mod steps;
